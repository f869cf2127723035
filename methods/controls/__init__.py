"""Variants of methods that no table shows unless they are named."""
