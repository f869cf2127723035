"""Many runs: one run (worker), what comes next (schedule), where (pool, dask), how it is shown (progress).

May import errors, files, store, config and trainer. runner.worker and runner.estimate need torch; nothing else here
imports it before it is used.
"""
