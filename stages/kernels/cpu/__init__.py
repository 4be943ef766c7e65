"""The kernels for the host, compiled by Numba."""

from stages.kernels.cpu import block_blas, cg_update, hisq_dslash, one_link_current, staple
from stages.kernels.reference import stream

__all__ = ["block_blas", "cg_update", "hisq_dslash", "one_link_current", "staple", "stream"]
