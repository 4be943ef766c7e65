"""Batched cuBLAS on matrices where they lie: rows of one spin, colour and parity of a slice are strided.

In complex64 sums of up to 1024 terms are in single, of these in double. Each of several devices works on its
own slices. Shifts take one thread a column of a site, the current sums over slices in every block of threads,
then over blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from math import ceil

import cupy
import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels import expressions
from stages.lqcd.kernels.cuda import block_blas
from stages.lqcd.kernels.cuda.columns import column_shape
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.cublas import gemm
from stages.lqcd.kernels.cuda.devices.own_rows import joined, on_own_rows
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    Launch,
    extents_of,
    instance,
    largest_divisor,
    narrowable,
    power_of_two,
)
from stages.lqcd.kernels.expressions import laplacian_step as laplacian_step
from stages.lqcd.kernels.expressions import spin_pairs as spin_pairs
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS
from stages.lqcd.lattice.geometry import Lattice

SINGLE_ROWS, DOUBLE_ROWS = 1024, 4096
"""Most rows of a run. In single precision it bounds what is summed before sums are added up in double."""

PARTIAL_BYTES = 128 << 20
"""Of the sums of runs that are held at a time, if one run's fit into it."""

WARP = 32


@dataclass(frozen=True)
class Runs:
    """Products left^H right over runs of `rows` rows, ``[slice, run, group]``: the sum over runs is wanted.

    left, right: offsets of the first rows, int64; left_stride, right_stride: from one row to the next;
    left_columns, right_columns: of the matrices.
    """

    rows: int
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    left_stride: int
    right_stride: int
    left_columns: int
    right_columns: int

    def product_bytes(self, dtype: np.dtype) -> int:
        """Bytes of the results of one run of one slice."""
        return self.left.shape[2] * self.left_columns * self.right_columns * dtype.itemsize

    def chunks(self, dtype: np.dtype) -> Iterator[tuple[slice, slice]]:
        """Slices and runs whose results are held together: whole slices, or some runs of one."""
        slices, runs, _ = self.left.shape
        fitting = max(1, PARTIAL_BYTES // self.product_bytes(dtype))
        taken, height = max(1, fitting // runs), min(runs, fitting)
        for first in range(0, slices, taken):
            for first_run in range(0, runs, height):
                yield slice(first, first + taken), slice(first_run, first_run + height)

    def workspace_bytes(self, dtype: np.dtype) -> int:
        """Results held at a time and three pointers to each product."""
        slices, runs = next(self.chunks(dtype))
        count = len(range(len(self.left))[slices]) * len(range(self.left.shape[1])[runs])
        return count * (self.product_bytes(dtype) + 3 * 8 * self.left.shape[2])


def sink_projection(
    vectors: cupy.ndarray, solutions: cupy.ndarray, out: cupy.ndarray, first: int = 0
) -> cupy.ndarray:
    _, fields, _, n = solutions.shape

    def project(vectors: cupy.ndarray, out: cupy.ndarray, slices: range) -> None:
        runs = sink_runs(vectors.shape, fields, n, slices.start, vectors.dtype)
        _multiply(vectors, solutions, out, runs)

    on_own_rows(project, vectors, out, range(first, first + len(vectors)))
    return out


def slice_gram(left: cupy.ndarray, right: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    on_own_rows(
        lambda x, y, own: _multiply(x, y, own, gram_runs(x.shape, y.shape[-1], x.dtype)), left, right, out
    )
    return out


def slice_adjoint(x: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    on_own_rows(expressions.slice_adjoint, x, out)
    return out


def put_rows(table: cupy.ndarray, chosen: NDArray[np.intp], out: cupy.ndarray) -> None:
    def put(table: cupy.ndarray, out: cupy.ndarray, slices: range) -> None:
        expressions.put_rows(table, chosen[slices.start : slices.stop], out)

    on_own_rows(put, out, range(len(out)), small=(table,))


def put_sources(vectors: cupy.ndarray, rho: NDArray[np.complex128], out: cupy.ndarray) -> None:
    on_own_rows(lambda own, slices: expressions.put_sources(slices, rho, own), out, vectors)


def weighted(x: cupy.ndarray, phases: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    on_own_rows(expressions.weighted, x, phases, out)
    return out


def slice_scale(x: cupy.ndarray, factor: cupy.ndarray, out: cupy.ndarray) -> None:
    on_own_rows(expressions.slice_scale, x, factor, out)


def slice_norms2(x: cupy.ndarray) -> cupy.ndarray:
    return joined(on_own_rows(expressions.slice_norms2, x))


def slice_add(y: cupy.ndarray, x: cupy.ndarray, factor: cupy.ndarray) -> None:
    on_own_rows(expressions.slice_add, y, x, factor)


def workspace_bytes(vectors: tuple[int, ...], columns: int, dtype: np.dtype) -> int:
    runs = [gram_runs(vectors, columns, dtype)]
    if columns % SPINS == 0:
        fields = vectors[0] * vectors[2]
        runs.append(sink_runs(vectors, fields, columns // SPINS, 0, dtype))
    return max(part.workspace_bytes(dtype) for part in runs)


def _multiply(left: cupy.ndarray, right: cupy.ndarray, out: cupy.ndarray, runs: Runs) -> None:
    """out[slice, group] = the sum over runs of left^H right."""
    out.fill(0)
    for slices, part in runs.chunks(left.dtype):
        _add_products(left, right, out[slices], runs, (slices, part))


def _add_products(
    left: cupy.ndarray, right: cupy.ndarray, out: cupy.ndarray, runs: Runs, chunk: tuple[slice, slice]
) -> None:
    """Add the sums over the runs of a chunk to `out`; its partial sums are free again when this returns."""
    addresses = np.stack(
        [
            left.data.ptr + runs.left[chunk] * left.itemsize,
            right.data.ptr + runs.right[chunk] * right.itemsize,
        ]
    ).astype(np.uint64)
    _, slices, terms, groups = addresses.shape
    partial = cupy.empty((slices, terms, groups, runs.left_columns, runs.right_columns), left.dtype)
    _multiply_runs(addresses.reshape(2, -1), partial, runs)
    results = out.size // slices
    run(add_runs_launch(results, slices, left.dtype), partial, out, np.int32(terms), np.int32(results))


def _multiply_runs(addresses: np.ndarray, partial: cupy.ndarray, runs: Runs) -> None:
    """partial[slice, run, group] = left^H right from the `addresses` of both, uint64 ``[2, product]``."""
    k, n, count = runs.left_columns, runs.right_columns, addresses.shape[1]
    results = partial.data.ptr + np.arange(count, dtype=np.uint64) * np.uint64(k * n * partial.itemsize)
    left, right, product = cupy.asarray(np.stack([*addresses, results]))
    lefts, rights = (left.data.ptr, runs.left_stride), (right.data.ptr, runs.right_stride)
    products = product.data.ptr, n, count
    gemm("Batched", partial.dtype, (n, k, runs.rows), rights, lefts, products, adjoint=True)


def sink_runs(vectors: tuple[int, ...], fields: int, n: int, first: int, dtype: np.dtype) -> Runs:
    """Runs of vectors ``[time, 2, site, 3, k]`` with slices `first`, ... of solutions ``[2, fields, 12, n]``.

    A run has one parity and colour; groups are the spins. Rows are sites: 3 k elements apart in vectors, 12 n
    in solutions.
    """
    times, _, sites, _, k = vectors
    rows = run_rows(sites, dtype)
    t, parity, run, colour, spin = np.indices((times, 2, sites // rows, COLOURS, SPINS), dtype=np.int64)
    site = run * rows
    left = (((t * 2 + parity) * sites + site) * COLOURS + colour) * k
    right = ((parity * fields + (first + t) * sites + site) * COMPONENTS + spin * COLOURS + colour) * n
    shape = (times, -1, SPINS)
    return Runs(rows, left.reshape(shape), right.reshape(shape), COLOURS * k, COMPONENTS * n, k, n)


def gram_runs(left: tuple[int, ...], columns: int, dtype: np.dtype) -> Runs:
    """Runs of left ``[time, 2, site, 3, k]`` with as many columns of the same rows; there is one group."""
    times, _, sites, _, k = left
    rows = run_rows(sites, dtype)
    start = np.arange(times * 2 * COLOURS * (sites // rows), dtype=np.int64).reshape(times, -1, 1) * rows
    return Runs(rows, start * k, start * columns, k, columns, k, columns)


def run_rows(rows: int, dtype: np.dtype) -> int:
    """The longest run that divides so many rows; a slice's sites have many divisors."""
    return largest_divisor(rows, SINGLE_ROWS if dtype == np.complex64 else DOUBLE_ROWS)


@cache
def add_runs_launch(results: int, slices: int, dtype: np.dtype) -> Launch:
    """Sums over runs of so many results of each slice; grid (results, slices)."""
    grid = (ceil(results / BLOCK_THREADS), slices)
    return Launch("slice_products.cu", instance("add_runs", dtype), grid, BLOCK_THREADS)


def slice_shift(
    links: cupy.ndarray,
    field: cupy.ndarray,
    out: cupy.ndarray,
    lattice: Lattice,
    mu: int,
    step: int,
    first: int = 0,
) -> cupy.ndarray:
    shift = partial(_shift, links[mu], lattice, mu, step)
    on_own_rows(shift, field, out, range(first, first + len(field)))
    return out


def _shift(
    links: cupy.ndarray,
    lattice: Lattice,
    mu: int,
    step: int,
    field: cupy.ndarray,
    out: cupy.ndarray,
    slices: range,
) -> None:
    """A shift of these slices of the lattice, for links of the direction mu."""
    columns, rows = field.shape[-1], field.size // field.shape[-1] // 3
    kernel = slice_shift_launch(lattice, field.dtype, mu, step, rows, columns)
    run(kernel, links, field, out, np.int32(rows), np.int32(columns), np.int32(slices.start))


@cache
def slice_shift_launch(
    lattice: Lattice, dtype: np.dtype, mu: int, step: int, rows: int, columns: int
) -> Launch:
    """Launch on so many sites, with up to a warp of threads for the columns of a site."""
    lanes = power_of_two(min(columns, WARP))
    kernel = instance("slice_shift", dtype, extents_of(lattice), mu, step, lanes)
    blocks = ceil(rows / (BLOCK_THREADS // lanes))
    return Launch("slice_shift.cu", kernel, (blocks,), BLOCK_THREADS, for_lattice=True)


def one_link_current(
    links: cupy.ndarray, noise: cupy.ndarray, solution: cupy.ndarray, lattice: Lattice, parity: int
) -> cupy.ndarray:
    n = noise.shape[-1]
    kernel = one_link_current_launch(lattice, n, noise.dtype)
    partials = cupy.empty((kernel.grid[0], lattice.time_extent, 4, n))
    run(kernel, links, noise, solution, partials, np.int32(parity))
    return block_blas.sum_partials(partials).T


def slice_dots(x: cupy.ndarray, y: cupy.ndarray, lattice: Lattice) -> cupy.ndarray:
    return block_blas.slice_dots(x, y, lattice.time_extent).T


@narrowable
def one_link_current_launch(lattice: Lattice, n: int, dtype: np.dtype) -> Launch:
    """Partial currents, float64 ``[parts, t, mu, n]``; grid (parts, t)."""
    slices, shape = lattice.time_extent, column_shape(n, dtype, resident=2048)
    parts = min(ceil(lattice.sites_per_slice / shape.groups), ceil(shape.blocks / slices))
    kernel = instance("current_partials", dtype, extents_of(lattice), n, shape.groups)
    work = RowWork(lattice.sites_per_slice, slices=slices)
    return Launch("one_link_current.cu", kernel, (parts, slices), shape.threads, for_lattice=True, work=work)
