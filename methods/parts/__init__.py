"""Larger parts that methods are built of (networks, neighbour search), and the parts of the registry; no method is here."""
