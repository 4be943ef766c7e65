"""The kernels in plain NumPy (CuPy arrays work too): the oracle of the CPU and CUDA kernels."""

from stages.kernels.reference import block_blas, cg_update, hisq_dslash, one_link_current, staple, stream

__all__ = ["block_blas", "cg_update", "hisq_dslash", "one_link_current", "staple", "stream"]
