"""The kernels, in three mirrors of the same names: `reference` (NumPy), `cpu` (Numba), `cuda` (CuPy and .cu).

Each package exposes the modules `hisq_dslash`, `block_blas`, `cg_update`, `one_link_current`, `staple` and
`stream`; `stages.lqcd.kernels.dispatch.kernels_for(array)` picks the package that owns an array. Fields have
the right-hand side as their fastest index: ``[site, 3, N]`` for one parity, C-contiguous.
"""
