"""One file per table and figure; the command line, `all` and `estimate` find them there. `base` has the base class, `parts`
what several share. An exhibit's file imports pandas, matplotlib and torch inside its functions, because `--help` reads it.
"""
