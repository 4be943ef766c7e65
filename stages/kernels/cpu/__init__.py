"""The kernels for the host, compiled by Numba."""

from stages.kernels.cpu import (
    basis,
    block_blas,
    block_cg,
    cg_update,
    heatbath,
    hisq_dslash,
    lane_blas,
    long_links,
    one_link_current,
    projection,
    staple,
)
from stages.kernels.reference import clover, doubled_links, noise, signs, stream, wilson_dslash

__all__ = [
    "basis",
    "block_blas",
    "block_cg",
    "cg_update",
    "clover",
    "doubled_links",
    "heatbath",
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
