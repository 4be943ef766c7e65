"""The kernels on NVIDIA GPUs: CUDA templates in `.cu` files, compiled at run time, behind thin CuPy wrappers.

`launch/` gives template arguments and grids (pure Python), `tuning/` chooses the best of them where it was
measured, `compile` turns a `.cu` file into a kernel. Reductions add in an order that depends on their shape
alone, without atomics: the same shapes give the same bits.
"""

from stages.lqcd.kernels.cuda import (
    aggregation,
    basis,
    batched_basis,
    block_blas,
    block_cg,
    cg_update,
    clover,
    coarse_dslash,
    doubled_links,
    heatbath,
    hisq_dslash,
    lane_blas,
    lane_gram,
    long_links,
    noise,
    one_link_current,
    projection,
    random_block,
    signs,
    slice_products,
    slice_shift,
    staple,
    stream,
    wilson_dslash,
)

__all__ = [
    "aggregation",
    "basis",
    "batched_basis",
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
    "random_block",
    "signs",
    "slice_products",
    "slice_shift",
    "staple",
    "stream",
    "wilson_dslash",
]
