"""BLAS products over slabs of rows that stay in the cache; shifts and the one-link current compiled by Numba.

One operand is conjugated on its way into a slab; where it is that of solutions, spins become columns there,
so that a slab of vectors is read once for four of them: conj(result) = vectors^T conj(solutions). In
complex64 sums of 768 terms are in single, of these in double.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.lane_dots import dots_by_block
from stages.lqcd.kernels.cpu.rows import real_rows
from stages.lqcd.kernels.gamma import COLOURS, SPINS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

SLAB_SITES = 256
"""Sites whose products, three colours each, are summed in the field's own precision before they are added up
in double.
"""


def sink_projection(vectors: NDArray, solutions: NDArray, out: NDArray, first: int = 0) -> NDArray:
    times, _, sites, _, k = vectors.shape
    n = solutions.shape[-1]
    spinors = solutions.reshape(2, -1, sites, SPINS, COLOURS, n)
    slab = np.empty((min(sites, SLAB_SITES), COLOURS, SPINS, n), solutions.dtype)
    for t in range(times):
        sums = np.zeros((k, SPINS * n), np.complex128)
        for parity, part in _slabs(sites):
            rows = vectors[t, parity, part].reshape(-1, k)
            conjugate = slab[: len(rows) // COLOURS]
            np.conjugate(spinors[parity, first + t, part].swapaxes(1, 2), out=conjugate)
            sums += rows.T @ conjugate.reshape(len(rows), -1)
        out[t] = sums.reshape(k, SPINS, n).swapaxes(0, 1).conj()
    return out


def slice_gram(left: NDArray, right: NDArray, out: NDArray) -> NDArray:
    out[...] = 0
    for t in range(len(left)):
        for parity, part in _slabs(left.shape[2]):
            conjugate, rows = (field[t, parity, part].reshape(-1, field.shape[-1]) for field in (left, right))
            out[t] += conjugate.conj().T @ rows
    return out


def workspace_bytes(vectors: tuple[int, ...], columns: int, dtype: np.dtype) -> int:
    *_, sites, colours, k = vectors
    slab = min(sites, SLAB_SITES) * colours * max(k, columns) * dtype.itemsize
    return slab + k * columns * (2 * np.dtype(np.complex128).itemsize + dtype.itemsize)


def _slabs(sites: int) -> Iterator[tuple[int, slice]]:
    """(parity, sites) of the slabs of a slice, one after the other."""
    for parity in (0, 1):
        for first in range(0, sites, SLAB_SITES):
            yield parity, slice(first, first + SLAB_SITES)


def slice_shift(
    links: NDArray, field: NDArray, out: NDArray, lattice: Lattice, mu: int, step: int, first: int = 0
) -> NDArray:
    sites, real = lattice.sites_per_slice, links.real.dtype
    # on slice t the sites of parity p lie as those of parity (p + t) % 2 do on slice 0
    tables = np.stack([lattice.neighbour(parity, mu, step)[:sites] for parity in (EVEN, ODD)])
    rows = (field.size // field.shape[-1] // 3, 3, 2 * field.shape[-1])
    matrices = links[mu].view(real).reshape(2, lattice.half_volume, 3, 6)
    arrays = (matrices, tables, field.view(real).reshape(rows), out.view(real).reshape(rows))
    _shift_kernel(real.itemsize)(*arrays, first, step)
    return out


@cache
def _shift_kernel(itemsize: int) -> Callable[..., None]:
    """A shift on real views ``[row, 3, Re and Im of columns]``, rows numbered [time, parity, site]."""

    def slice_shift(
        low: int,
        high: int,
        links: NDArray,
        tables: NDArray,
        field: NDArray,
        out: NDArray,
        first: int,
        step: int,
    ) -> None:
        sites, columns = tables.shape[1], field.shape[2] // 2
        for row in prange(low, high):
            t, parity, site = row // (2 * sites), row // sites % 2, row % sites
            neighbour = tables[(parity + first + t) % 2, site]
            source = (2 * t + 1 - parity) * sites + neighbour
            start = (first + t) * sites
            for i in range(3):
                for lane in range(2 * columns):
                    out[row, i, lane] = 0
                for k in range(3):
                    if step == 1:
                        re = links[parity, start + site, i, 2 * k]
                        im = links[parity, start + site, i, 2 * k + 1]
                    else:
                        re = links[1 - parity, start + neighbour, k, 2 * i]
                        im = -links[1 - parity, start + neighbour, k, 2 * i + 1]
                    for j in range(columns):
                        a, b = field[source, k, 2 * j], field[source, k, 2 * j + 1]
                        out[row, i, 2 * j] += re * a - im * b
                        out[row, i, 2 * j + 1] += re * b + im * a

    real = f"f{itemsize}"
    block, written = array_type(real, 3), array_type(real, 3, writable=True)
    signature = types.void(array_type(real, 4), array_type("i4", 2), block, written, types.int64, types.int64)
    return compiled(
        slice_shift, f"slice_shift_{8 * itemsize}", signature, lambda *arguments: len(arguments[3])
    )


def one_link_current(
    links: NDArray, noise: NDArray, solution: NDArray, lattice: Lattice, parity: int
) -> NDArray[np.float64]:
    neighbours = np.stack([lattice.neighbour(parity, mu, 1) for mu in range(4)])
    current = np.empty((lattice.time_extent, 4, noise.shape[2]))
    _current_kernel(noise.shape[2], noise.itemsize // 2)(
        links.reshape(4, -1, 9), neighbours, real_rows(noise), real_rows(solution), current
    )
    return np.ascontiguousarray(current.T)


def slice_dots(x: NDArray, y: NDArray, lattice: Lattice) -> NDArray[np.complex128]:
    return np.ascontiguousarray(dots_by_block(x, y, 3 * lattice.sites_per_slice).T)


@cache
def _current_kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    """Current ``[t, mu, N]``, one slice after another in a thread, every colour of every link in one pass.

    Fields are rows of reals; Re(U) v and Im(U) v are kept apart and combined once, as in the dslash.
    """
    lanes = 2 * rhs

    def current(
        low: int,
        high: int,
        links: NDArray,
        neighbours: NDArray,
        noise: NDArray,
        solution: NDArray,
        current: NDArray,
    ) -> None:
        sites = neighbours.shape[1] // len(current)
        for t in prange(low, high):
            re, im = np.empty(lanes, noise.dtype), np.empty(lanes, noise.dtype)
            for mu in range(4):
                for n in range(rhs):
                    current[t, mu, n] = 0
            for site in range(t * sites, (t + 1) * sites):
                for mu in range(4):
                    u, row = links[mu, site], 3 * neighbours[mu, site]
                    for i in range(3):
                        u0, u1, u2 = u[3 * i], u[3 * i + 1], u[3 * i + 2]
                        for lane in range(lanes):
                            v0, v1, v2 = solution[row, lane], solution[row + 1, lane], solution[row + 2, lane]
                            re[lane] = u0.real * v0 + u1.real * v1 + u2.real * v2
                            im[lane] = u0.imag * v0 + u1.imag * v1 + u2.imag * v2
                        for n in range(rhs):
                            hop_re, hop_im = re[2 * n] - im[2 * n + 1], re[2 * n + 1] + im[2 * n]
                            bra_re, bra_im = noise[3 * site + i, 2 * n], noise[3 * site + i, 2 * n + 1]
                            current[t, mu, n] += bra_im * hop_re - bra_re * hop_im

    block = array_type(f"f{itemsize}", 2)
    links_type, result_type = array_type(f"c{2 * itemsize}", 3), array_type("f8", 3, writable=True)
    signature = types.void(links_type, array_type("i4", 2), block, block, result_type)
    name = f"one_link_current_{rhs}_{8 * itemsize}"
    return compiled(current, name, signature, lambda *arguments: len(arguments[-1]))
