"""Updates of CG on a GPU, one pass over the fields each; numbers stay on the device."""

from __future__ import annotations

from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cuda.columns import ColumnShape, reduction, row_groups, row_threads
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.launch import Launch, instance
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned


def cg_advance(x: cupy.ndarray, p: cupy.ndarray, r: cupy.ndarray, coefficients: CGCoefficients) -> None:
    n, rows = r.shape[-1], r.size // r.shape[-1]
    kernel = cg_advance_launch(n, r.dtype, rows)
    run(kernel, x, p, r, coefficients.numbers, np.int64(rows))


def cg_residual(r: cupy.ndarray, ap: cupy.ndarray, coefficients: CGCoefficients) -> None:
    n, rows = r.shape[-1], r.size // r.shape[-1]
    kernel = reduction("cg_residual", n, r.dtype, rows)
    run(kernel, r, ap, coefficients.numbers, *grid_sums(kernel, n), np.int64(rows))


@tuned
def cg_advance_launch(n: int, dtype: np.dtype, rows: int) -> Options[ColumnShape]:
    """Step 1 of batched CG, with a thread for each vector of each row (`Columns::for_one`)."""
    groups = row_groups(n, dtype, (256, 128, 512))

    def launch(shape: ColumnShape) -> Launch:
        block = row_threads(n, dtype) * shape.groups
        name, work = instance("cg_advance", dtype, n, shape.groups), RowWork(rows, shape.groups)
        return Launch("cg_update.cu", name, (shape.blocks,), block, work=work)

    return Options(tuple(ColumnShape(g, ceil(rows / g)) for g in groups), launch)
