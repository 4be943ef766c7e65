"""Shifts of slices on a GPU, one thread a column of a site."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import slice_shift as shapes
from stages.lqcd.kernels.expressions import laplacian_step as laplacian_step
from stages.lqcd.lattice.geometry import Lattice


def slice_shift(
    links: cupy.ndarray,
    field: cupy.ndarray,
    out: cupy.ndarray,
    lattice: Lattice,
    mu: int,
    step: int,
    first: int = 0,
) -> cupy.ndarray:
    columns, rows = field.shape[-1], field.size // field.shape[-1] // 3
    kernel = shapes.slice_shift(lattice, field.dtype, mu, step, rows, columns)
    run(kernel, links[mu], field, out, np.int32(rows), np.int32(columns), np.int32(first))
    return out
