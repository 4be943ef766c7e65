"""The kernels on NVIDIA GPUs: CUDA templates in `.cu` files, compiled at run time, behind thin CuPy wrappers.

`launch/` chooses template arguments and grid (pure Python), `compile` turns a `.cu` file into a kernel.
Reductions use grids that do not depend on the device and no atomics: the same shapes give the same bits.
"""

from stages.kernels.cuda import (
    block_blas,
    cg_update,
    doubled_links,
    heatbath,
    hisq_dslash,
    long_links,
    noise,
    one_link_current,
    projection,
    signs,
    staple,
    stream,
)

__all__ = [
    "block_blas",
    "cg_update",
    "doubled_links",
    "heatbath",
    "hisq_dslash",
    "long_links",
    "noise",
    "one_link_current",
    "projection",
    "signs",
    "staple",
    "stream",
]
