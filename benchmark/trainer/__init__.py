"""One run: data and candidate labels, views on the device, the trainer, its optimiser, checkpoints and evaluation.

May import errors, files, store and plan, datasets and methods; never run, which decides where and when a run happens.
Others start at train.trainer (`Trainer`) and train.loading (what a specification names).
"""
