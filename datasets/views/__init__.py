"""Augmented views of images and feature rows, a function of (seed, epoch, row, view) alone.

`recipes` is torch-free and may be imported by a dataset's file; `views.Views` and `features.feature_views` make the
views from it; `ops`, `autoaugment` and `counter` are their parts. Imports nothing of `datasets` outside this package.
"""
