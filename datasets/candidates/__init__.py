"""Candidate labels: `generators` has the rules, `candidate_sets` draws and stores sets, `votes` counts.

These modules import `datasets.base`, `datasets.storage` and `datasets.views.counter`; of them, dataset files use `votes`.
"""
