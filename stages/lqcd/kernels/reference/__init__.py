"""The kernels in plain NumPy: the oracle of the others, and no product code.

A kernel that is plain NumPy on the host too has no second form here: it lives in `cpu`.
"""
