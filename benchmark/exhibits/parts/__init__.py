"""Parts of several exhibits and commands: accuracy cells, panels, styles, sweeps, the data card of a candidate set."""
