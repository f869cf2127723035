"""Variants of methods, in no table by default."""
