"""From runs to numbers: statistics, comparisons of methods, published numbers, and the type `Table` with its renderings.

May import run and everything left of it. Needs no torch; exhibits decide what is compared.
"""
