"""Backbones, ML-Decoder, neighbour search and pretrained weights, of which methods are built."""
