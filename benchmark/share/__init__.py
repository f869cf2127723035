"""Results that leave the machine: one cell in full, a folder checked, compared, joined, packed, cleaned.

A folder from elsewhere is data to judge: nothing in it is trusted, executed or changed. May import what stands left of it.
"""
