"""Typed settings, profiles, the exact configuration and identity of every run, and the grid of runs.

May import errors and the registries of datasets and methods. Needs no torch and executes nothing.
"""
