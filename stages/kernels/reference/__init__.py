"""The kernels in plain NumPy (CuPy arrays work too): the oracle of the CPU and CUDA kernels."""

from stages.kernels.reference import (
    basis,
    block_blas,
    block_cg,
    cg_update,
    clover,
    doubled_links,
    hisq_dslash,
    lane_blas,
    long_links,
    noise,
    one_link_current,
    projection,
    signs,
    staple,
    stream,
    wilson_dslash,
)

__all__ = [
    "basis",
    "block_blas",
    "block_cg",
    "cg_update",
    "clover",
    "doubled_links",
    "hisq_dslash",
    "lane_blas",
    "long_links",
    "noise",
    "one_link_current",
    "projection",
    "signs",
    "staple",
    "stream",
    "wilson_dslash",
]
