"""The kernels for the host, compiled by Numba."""

from stages.kernels.cpu import hisq_dslash
from stages.kernels.reference import block_blas, cg_update, one_link_current, staple

__all__ = ["block_blas", "cg_update", "hisq_dslash", "one_link_current", "staple"]
