"""Files: `files` has the project's lock, atomic write and file name, `cache` keeps decoded images, `fetch` downloads.

`files` imports nothing of the project, so that everybody may import it; `cache` needs `datasets.base`, `fetch` also
`datasets.registry`.
"""
