"""Candidate labels: `generators` defines the rules, `candidate_sets` draws and stores sets, `votes` counts answers.

These modules import `datasets.base`, `datasets.storage` and `datasets.views.counter`; of them, dataset files use `votes`.
"""
