"""Methods, one file each, and what they are handed (`base`), find each other by (`registry`) and share (`blocks`, `parts`).

Imports nothing of `datasets` or `benchmark`. A new method is a new file here, or anywhere with `--plugin FILE`.
"""
