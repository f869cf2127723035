"""Candidate labels: `generators` holds the rules (torch-free), `candidates` draws and stores sets, `annotator` trains.

May import `datasets.base`, `datasets.storage` and `datasets.views.counter`; data set files do not import this room.
"""
