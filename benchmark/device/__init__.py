"""A pretend CUDA device, which finds on a CPU what a training would do wrong on a GPU.

`pretend` is the device, `operations` lists properties of torch's operations on CUDA, `environment` what CUDA reads when
it starts. Of the other packages only `files` is imported.
"""
