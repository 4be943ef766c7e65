"""Gathers and sums over slices."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import Lattice


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
