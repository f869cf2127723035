"""Datasets, one file per dataset or family. `registry` collects them, `base` defines what a dataset is.

`views` augments, `candidates` makes candidate sets, `storage` fetches, decodes and writes files, `user` reads the user's
own data. Nothing here imports `benchmark` or `methods`; importing `registry` needs no torch.
"""
