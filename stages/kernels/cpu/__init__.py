"""The kernels for the host, compiled by Numba."""

from stages.kernels.cpu import (
    aggregation,
    basis,
    block_blas,
    block_cg,
    cg_update,
    clover,
    coarse_dslash,
    heatbath,
    hisq_dslash,
    lane_blas,
    lane_gram,
    long_links,
    one_link_current,
    projection,
    staple,
    wilson_dslash,
)
from stages.kernels.reference import doubled_links, noise, signs, stream

__all__ = [
    "aggregation",
    "basis",
    "block_blas",
    "block_cg",
    "cg_update",
    "clover",
    "coarse_dslash",
    "doubled_links",
    "heatbath",
    "hisq_dslash",
    "lane_blas",
    "lane_gram",
    "long_links",
    "noise",
    "one_link_current",
    "projection",
    "signs",
    "staple",
    "stream",
    "wilson_dslash",
]
