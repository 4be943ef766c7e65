"""Contractions per time slice: the one-link taste-singlet vector current and plain dot products."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_current
from stages.lqcd.lattice.geometry import Lattice


def one_link_current(links: Array, noise: Array, solution: Array, lattice: Lattice, parity: int) -> Array:
    """J_mu(t) = -Im sum_{x in t, x of parity} noise(x)^dag U_mu(x) solution(x + mu), float64 ``[N, mu, t]``.

    links: phased, of `parity`, ``[mu, site, 3, 3]``, used in the noise's precision; noise ``[site, 3, N]``
    on `parity`; solution ``[site, 3, N]`` on the opposite parity. Sign and normalisation are MILC's.
    """
    xp = array_module(noise)
    links = xp.ascontiguousarray(links, noise.dtype)
    check_current(links, noise, solution, lattice)
    current = xp.empty((noise.shape[2], 4, lattice.time_extent))
    for mu in range(4):
        neighbour = xp.asarray(lattice.neighbour(parity, mu, 1))
        current[:, mu] = -slice_dots(noise, links[mu] @ solution[neighbour], lattice).imag
    return current


def slice_dots(x: Array, y: Array, lattice: Lattice) -> Array:
    """conj(x) . y of each right-hand side and time slice, complex128 ``[N, t]``; x, y ``[site, 3, N]``."""
    products = x.astype(np.complex128).conj() * y
    return products.reshape(lattice.time_extent, -1, x.shape[2]).sum(axis=1).T
