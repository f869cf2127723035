"""The checks that every method must pass, as plain functions; `check FILE`, which runs them; and the pretend CUDA device."""
