"""The kernels: a module for each family states what its functions do, checks their operands and starts them.

`dispatch` chooses the implementation by where the operands live: `cpu` (Numba) for NumPy arrays, `cuda`
(CuPy and .cu) for CuPy arrays, and in tests `reference` (plain NumPy), their oracle. Fields have the
right-hand side as their fastest index: ``[site, 3, N]`` for one parity, C-contiguous.
"""
