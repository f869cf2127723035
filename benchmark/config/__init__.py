"""Which runs: typed settings, profiles, the exact configuration of every run, what the command line selected.

May import errors, files and store, and the registries of datasets and methods. Needs no torch and executes nothing.
"""
