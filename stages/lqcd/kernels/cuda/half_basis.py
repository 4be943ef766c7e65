"""Every field is read once, but y of sums once for each group of a basis; results stay on the device."""

from __future__ import annotations

from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.columns import ColumnShape
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.half_update import summing_shape
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned
from stages.lqcd.kernels.half_basis import HalfBasis
from stages.lqcd.kernels.half_field import HalfField

DOTTED = (1, 2, 4, 6)
"""Fields of a basis whose sums a thread keeps: all that GCR with multigrid has, and none is spilled."""

SUMS = {"combine": 3, "update": 1}
"""Doubles of a right-hand side that an update adds up."""


def half_basis_dots(xs: HalfBasis, y: cupy.ndarray) -> cupy.ndarray:
    sites, _, n = y.shape
    if not len(xs):
        return cupy.empty((0, n), np.complex128)
    kernel = half_basis_dots_launch(n, sites, len(xs))
    sums, workspace = cupy.empty((len(xs), n), np.complex128), grid_sums(kernel, 2 * DOTTED[-1] * n)
    run(kernel, xs.codes, xs.scales, y, sums, *workspace, np.int64(sites), np.int32(len(xs)))
    return sums


def half_basis_combine(
    y: cupy.ndarray, xs: HalfBasis, a: cupy.ndarray, out: HalfField, r: cupy.ndarray
) -> cupy.ndarray:
    sites, _, n = y.shape
    kernel, sums = half_basis_update_launch("combine", n, sites, len(xs)), cupy.empty((2, n), np.complex128)
    operands = (y, xs.codes, xs.scales, cupy.ascontiguousarray(a, np.complex128), out.codes, out.scales, r)
    run(kernel, *operands, sums, *grid_sums(kernel, 3 * n), np.int64(sites), np.int32(len(xs)))
    return sums


def half_basis_update(y: cupy.ndarray, xs: HalfBasis, a: cupy.ndarray) -> cupy.ndarray:
    sites, _, n = y.shape
    kernel, norms2 = half_basis_update_launch("update", n, sites, len(xs)), cupy.empty(n)
    operands = y, xs.codes, xs.scales, cupy.ascontiguousarray(a, np.complex128)
    run(kernel, *operands, norms2, *grid_sums(kernel, n), np.int64(sites), np.int32(len(xs)))
    return norms2


@tuned
def half_basis_dots_launch(n: int, sites: int, count: int) -> Options[ColumnShape]:
    """Sums over a basis of `count` fields; grid (parts, groups of fields)."""
    slices = ceil(count / DOTTED[-1])
    fields = next(size for size in DOTTED if size * slices >= count)

    def launch(shape: ColumnShape) -> Launch:
        kernel, grid = f"half_basis_dots<{n}, {fields}, {shape.groups}>", (shape.blocks, slices)
        work = RowWork(sites, sums=True, reads=True)
        return Launch("half_basis.cu", kernel, grid, n * shape.groups, work=work)

    return Options((summing_shape(n, sites, slices),), launch)


@tuned
def half_basis_update_launch(name: str, n: int, sites: int, count: int) -> Options[ColumnShape]:
    """One of the `SUMS` over `count` fields; grid (parts, 1)."""

    def launch(shape: ColumnShape) -> Launch:
        kernel, work = f"half_basis_{name}<{n}, {shape.groups}>", RowWork(sites, sums=True)
        threads, shared = n * shape.groups, count * n * np.dtype(np.complex64).itemsize
        return Launch("half_basis.cu", kernel, (shape.blocks, 1), threads, shared, work=work)

    return Options((summing_shape(n, sites),), launch)
