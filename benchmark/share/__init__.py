"""Results that leave the machine: a folder checked, compared, joined, packed.

A folder from elsewhere is data to judge: nothing in it is trusted, executed or changed. May import what stands left of it.
"""
