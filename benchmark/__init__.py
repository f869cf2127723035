"""The benchmark: which runs (plan), one run (train), many runs (run), numbers (analysis), tables and figures (exhibits),
the page (report), the command line (cli). Imports go in this order only; docs/architecture.md is the map, and
tests/test_architecture.py holds it to the code. `from benchmark import store` is the public way to results.
"""
