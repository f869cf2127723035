"""Many runs: what carries one out (worker), where (backends), what is written down beside it, how it is shown.

May import errors, files, store, plan and train. The rest of the program takes `BACKENDS` from run.backends,
`RunOptions` and `Outcome` from run.options. run.worker needs torch; back-ends import it where it is to be used.
"""
