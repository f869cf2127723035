"""The command line, one module per group of commands. May import everything; what is heavy is imported inside functions,
because `--help` reads all modules."""
