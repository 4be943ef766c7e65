"""Sweeps in NumPy: the oracle of the compiled ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.random_numbers import philox4x32
from stages.lqcd.kernels.reference.smearing import add_staple
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

SUBGROUPS = ((0, 1), (0, 2), (1, 2))


def heat_bath(links: NDArray, lattice: Lattice, beta: float, key: tuple[int, int], sweep: int) -> None:
    for mu in range(4):
        for parity in (EVEN, ODD):
            staples = staple_sum(links, lattice, mu, parity)
            for subgroup, rows in enumerate(SUBGROUPS):
                part = su2_part(links[mu, parity] @ _dagger(staples), rows)

                def draw(attempt: int, parity: int = parity, link: int = 3 * mu + subgroup) -> NDArray:
                    return uniforms(lattice, parity, key, (sweep, link, attempt))

                _multiply(links[mu, parity], heat_bath_element(part, beta / 3, draw), rows)


def over_relax(links: NDArray, lattice: Lattice) -> None:
    for mu in range(4):
        for parity in (EVEN, ODD):
            staples = staple_sum(links, lattice, mu, parity)
            for rows in SUBGROUPS:
                part = su2_part(links[mu, parity] @ _dagger(staples), rows)
                inverse = _dagger(part) / np.sqrt(np.linalg.det(part))[:, None, None]
                _multiply(links[mu, parity], inverse @ inverse, rows)


def uniforms(lattice: Lattice, parity: int, key: tuple[int, int], words: tuple[int, int, int]) -> NDArray:
    """``[4, site]`` in (0, 1); words: sweep, 3 direction + subgroup, attempt, -1 for the orientation."""
    sites = lattice.lexicographic(parity).astype(np.uint64)
    sweep, link, attempt = words
    counters = (np.full_like(sites, word) for word in (sweep, (1 << 31) | link, attempt % (1 << 32)))
    first, second, third = counters
    return (np.array(philox4x32((sites, first, second, third), key)) + 0.5) / 2**32


def staple_sum(links: NDArray, lattice: Lattice, mu: int, parity: int) -> NDArray:
    """S for the links of one direction and parity, ``[site, 3, 3]``: sum_P Re tr P holds Re tr (U S^dag)."""
    staples = np.zeros_like(links[mu])
    for nu in range(4):
        if nu != mu:
            add_staple(staples, links[mu], links[nu], lattice, mu, nu, 1.0)
    return staples[parity]


def su2_part(matrices: NDArray, rows: tuple[int, int]) -> NDArray:
    """P ``[site, 2, 2]``, multiples of SU(2): Re tr (g P) = Re tr (g m) + const for g of the subgroup."""
    block = matrices[:, rows][:, :, rows]
    adjugate = np.trace(block, axis1=-2, axis2=-1)[:, None, None] * np.eye(2) - block
    return 0.5 * (block + _dagger(adjugate))


def heat_bath_element(part: NDArray, weight: float, draw: Callable[[int], NDArray]) -> NDArray:
    """Elements g ``[site, 2, 2]`` of SU(2) with the density exp(weight Re tr (g part)).

    draw(attempt) -> uniforms ``[4, site]``. g part = |part| h; h0 by Kennedy and Pendleton where alpha =
    2 weight |part| exceeds 1, else by rejection from the uniform density.
    """
    norm = np.sqrt(np.linalg.det(part).real)
    alpha = 2 * weight * norm
    x, rejected = np.empty_like(alpha), np.ones(alpha.shape, bool)
    attempt = 0
    while rejected.any():
        r0, r1, r2, r3 = draw(attempt)
        by_gamma = -(np.log(r0) + np.cos(2 * np.pi * r1) ** 2 * np.log(r2)) / np.maximum(alpha, 1)
        proposal = np.where(alpha > 1, by_gamma, 2 * r0)
        flat = proposal * (2 - proposal) * np.exp(-2 * alpha * proposal)
        x = np.where(rejected, proposal, x)
        rejected &= r3**2 > np.where(alpha > 1, 1 - proposal / 2, flat)
        attempt += 1
    r0, r1, _, _ = draw(-1)
    h0, length = 1 - x, np.sqrt(x * (2 - x))
    angle, transverse = 2 * np.pi * r1, 2 * length * np.sqrt(r0 * (1 - r0))
    a, b = h0 + 1j * length * (1 - 2 * r0), transverse * np.exp(1j * angle)
    h = np.moveaxis(np.array([[a, b], [-b.conj(), a.conj()]]), -1, 0)
    return h @ _dagger(part) / norm[:, None, None]


def _multiply(links: NDArray, elements: NDArray, rows: tuple[int, int]) -> None:
    links[:, rows] = elements @ links[:, rows]


def _dagger(matrices: NDArray) -> NDArray:
    return matrices.conj().swapaxes(-1, -2)
