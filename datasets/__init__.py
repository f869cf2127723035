"""Data sets and their candidate labels. One file per data set (family); `registry` finds them, `base` says what one is.

Sub-rooms: `views` augments, `labels` makes candidate sets, `storage` fetches, decodes and writes files. Nothing here
imports `benchmark` or `methods`; importing `registry` needs no torch.
"""
