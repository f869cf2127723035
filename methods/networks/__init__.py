"""Backbones, ML-Decoder, neighbour search and pretrained weights."""
