"""Gathers, matrix products and sums of a slice in double, of copies."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.gamma import COLOURS, SPINS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def sink_projection(vectors: Array, solutions: Array, out: Array, first: int = 0) -> Array:
    times, _, sites, _, k = vectors.shape
    n = solutions.shape[-1]
    spinors = solutions.reshape(2, -1, sites, SPINS, COLOURS, n)
    for t in range(times):
        rows = vectors[t].reshape(-1, k).astype(np.complex128)
        by_spin = spinors[:, first + t].transpose(2, 0, 1, 3, 4).reshape(SPINS, -1, n)
        out[t] = rows.conj().T @ by_spin.astype(np.complex128)
    return out


def slice_gram(left: Array, right: Array, out: Array) -> Array:
    for t in range(len(left)):
        conjugate, rows = (
            field[t].reshape(-1, field.shape[-1]).astype(np.complex128) for field in (left, right)
        )
        array_module(left).matmul(conjugate.conj().T, rows, out=out[t])
    return out


def workspace_bytes(vectors: tuple[int, ...], columns: int, dtype: np.dtype) -> int:
    *_, sites, colours, k = vectors
    rows = 2 * sites * colours * (k + columns)
    return 3 * rows * np.dtype(np.complex128).itemsize


def slice_shift(
    links: Array, field: Array, out: Array, lattice: Lattice, mu: int, step: int, first: int = 0
) -> Array:
    sites, xp = lattice.sites_per_slice, array_module(field)
    for t in range(len(field)):
        start = (first + t) * sites
        rows = slice(start, start + sites)
        for parity in (EVEN, ODD):
            neighbours = xp.asarray(lattice.neighbour(parity, mu, step)[rows] - start)
            if step == 1:
                matrices = links[mu, parity, rows]
            else:
                matrices = links[mu, 1 - parity, rows][neighbours].conj().swapaxes(-1, -2)
            out[t, parity] = matrices @ field[t, 1 - parity][neighbours]
    return out


def one_link_current(links: Array, noise: Array, solution: Array, lattice: Lattice, parity: int) -> Array:
    xp = array_module(noise)
    current = xp.empty((noise.shape[2], 4, lattice.time_extent))
    for mu in range(4):
        neighbour = xp.asarray(lattice.neighbour(parity, mu, 1))
        current[:, mu] = -slice_dots(noise, links[mu] @ solution[neighbour], lattice).imag
    return current


def slice_dots(x: Array, y: Array, lattice: Lattice) -> Array:
    products = x.astype(np.complex128).conj() * y
    return products.reshape(lattice.time_extent, -1, x.shape[2]).sum(axis=1).T
