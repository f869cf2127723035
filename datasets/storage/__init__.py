"""Files: `files` has locks, atomic writes and file names, `cache` stores decoded images, `fetch` downloads `archives`.

`files` and `archives` import nothing of the project; `cache` needs `datasets.base`, `fetch` also `datasets.registry`.
"""
