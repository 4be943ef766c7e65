"""The kernels for the host, compiled by Numba; a few need no more than NumPy."""
