"""What CUDA reads from the environment when it starts. Needs no torch."""

from __future__ import annotations

import os

# Exact matrix products, and an allocator that does not mind batches of many sizes.
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}

pretended = False  # whether this process has used the pretend device, after which autograd cannot be used in its forks


def set_environment() -> None:
    """For this process and its children; what somebody has set already stays."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
