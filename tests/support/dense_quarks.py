"""Quarks on fields of diagonal links: dense matrices written out colour by colour, and rotated fields.

Links are phases ``[mu, t, z, y, x, colour]`` with product 1 over colours: SU(3), of which each colour is a
field by itself, so that a dense inverse of a small lattice takes no time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.gamma import GAMMA
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.little_group import Rotation
from support.lexicographic import gauge_to_parity

AXIS = (3, 2, 1, 0)
"""Axis of x, y, z, t in ``[t, z, y, x]``."""


def diagonal_links(lattice: Lattice, seed: int, spread: float = 1.0) -> NDArray:
    angles = spread * np.random.default_rng(seed).normal(size=(4, *lattice.extents[::-1], 3))
    return np.exp(1j * (angles - angles.mean(axis=-1, keepdims=True)))


def as_links(phases: NDArray, lattice: Lattice) -> NDArray:
    """``[mu, parity, site, 3, 3]``."""
    return gauge_to_parity(np.moveaxis(phases[..., None] * np.eye(3), 0, 4), lattice)


def ahead(field: NDArray, mu: int, steps: int = 1) -> NDArray:
    """f(x + steps mu) of ``[t, z, y, x, ...]``."""
    return np.roll(field, -steps, AXIS[mu])


def rotated(phases: NDArray, rotation: Rotation) -> NDArray:
    """The field turned about the origin: U'(g x -> g (x + mu)) = U(x -> x + mu)."""
    turned, extents = np.empty_like(phases), phases.shape[4:0:-1]
    t, z, y, x = np.indices(phases.shape[1:5])
    image = [np.zeros_like(x) for _ in range(3)]
    for place, (axis, sign) in zip((x, y, z), rotation, strict=True):
        image[axis] += sign * place
    for mu in range(4):
        axis, sign = rotation[mu] if mu < 3 else (3, 1)
        place = [(each - (sign < 0) * (k == axis)) % extents[k] for k, each in enumerate(image)]
        turned[axis, t, place[2], place[1], place[0]] = phases[mu] if sign > 0 else phases[mu].conj()
    return turned


def antiperiodic(phases: NDArray) -> NDArray:
    signed = phases.copy()
    signed[3, -1] *= -1
    return signed


def wilson_matrix(phases: NDArray, mass: float, colour: int) -> NDArray:
    """M ``[site, spin, site, spin]``, sites with x fastest, antiperiodic in t."""
    u, here = antiperiodic(phases)[..., colour], np.arange(phases[0, ..., 0].size)
    number = here.reshape(u.shape[1:])
    matrix = np.einsum("xy,ab->xayb", (mass + 4) * np.eye(here.size), np.eye(4)).astype(complex)
    for mu in range(4):
        there, link = ahead(number, mu).ravel(), u[mu].ravel()[:, None, None]
        np.add.at(matrix.swapaxes(1, 2), (here, there), -0.5 * link * (np.eye(4) - GAMMA[mu]))
        np.add.at(matrix.swapaxes(1, 2), (there, here), -0.5 * link.conj() * (np.eye(4) + GAMMA[mu]))
    return matrix


def phases_of_milc(shape: tuple[int, ...]) -> NDArray:
    """eta_mu ``[mu, t, z, y, x]``."""
    t, _, y, x = np.indices(shape)
    return np.stack([(-1.0) ** t, (-1.0) ** (t + x), (-1.0) ** (t + x + y), np.ones(shape)])


def staggered_matrix(fat: NDArray, long: NDArray | None, mass: float, colour: int) -> NDArray:
    """2 m + D ``[site, site]`` of links with boundary signs and without phases."""
    eta, size = phases_of_milc(fat.shape[1:5]), fat[0, ..., 0].size
    here, matrix = np.arange(size), 2 * mass * np.eye(size, dtype=complex)
    number = here.reshape(fat.shape[1:5])
    for links, steps in ((fat, 1), (long, 3)):
        if links is None:
            continue
        for mu in range(4):
            hop = (eta[mu] * links[mu, ..., colour]).ravel()
            there = ahead(number, mu, steps).ravel()
            np.add.at(matrix, (here, there), hop)
            np.add.at(matrix, (there, here), -hop.conj())
    return matrix
