"""One run: data and candidate labels, views on the device, the trainer, its optimiser, checkpoints and evaluation.

Start reading at trainer.trainer (`Trainer`) and trainer.loading. Imports nothing from runner.
"""
