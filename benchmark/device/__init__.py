"""A CUDA device that this machine need not have: what a training asks of one, seen on a CPU.

`pretend` is the device, `operations` what is known of torch's operations on CUDA. Imports nothing of the other rooms
but `files`.
"""
