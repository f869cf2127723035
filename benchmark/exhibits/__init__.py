"""One file per table and figure of a paper; the command line, `all` and `estimate` find it there. `base` is what each
one is, `parts` what several share. May import analysis and everything left of it, not report or cli; an exhibit's file
imports pandas, matplotlib and torch inside its functions, because `--help` reads all of them."""
