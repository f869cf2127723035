"""The command line: one file per command, found by `main`; `options` is the only code that sees argparse. May import
everything. A command's file imports what is heavy inside its functions, because `--help` reads all of them."""
