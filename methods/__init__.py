"""Methods, one file each; their interface (`base`), registry, and shared code (`blocks`, `networks`).

Imports nothing of `datasets` or `benchmark`. A new method is a new file here, or anywhere with `--plugin FILE`.
"""
