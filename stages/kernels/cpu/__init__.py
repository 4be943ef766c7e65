"""The kernels for the host, compiled by Numba."""

from stages.kernels.cpu import block_blas, cg_update, hisq_dslash, one_link_current, staple

__all__ = ["block_blas", "cg_update", "hisq_dslash", "one_link_current", "staple"]
