"""Links of Wilson-type operators in 12 and in 8 reals (su3_links.cuh).

A link is w s U with U in SU(3): w is its direction's weight; s = +-1 depends on the direction alone, but for
links that cross the lattice's edge. f = s / w makes U = f link, and third row = f conj(row 0 x row 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import cupy
import numpy as np

from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS
from stages.lqcd.lattice.geometry import Lattice

FOLLOWING, BEFORE = [1, 2, 0], [2, 0, 1]


@dataclass(frozen=True)
class ShortLinks:
    """Links ``[tile, direction, site in tile, 6 or 4]``, complex, and factors ``[12]``, real.

    factors: f of each direction, then for each mu the sign that f has besides on links across the edge.
    """

    links: cupy.ndarray
    factors: cupy.ndarray


def edges(lattice: Lattice, parity: int) -> cupy.ndarray:
    """True for links into the sites of `parity` that cross the lattice's edge, bool ``[site, direction]``."""
    coordinates = lattice.coordinates(parity)
    crossing = np.empty((lattice.half_volume, NAIVE_DIRECTIONS), bool)
    for mu, extent in enumerate(lattice.extents):
        crossing[:, 2 * mu] = coordinates[:, mu] == extent - 1
        crossing[:, 2 * mu + 1] = coordinates[:, mu] == 0
    return cupy.asarray(crossing)


def two_rows(tiles: cupy.ndarray, crossing: cupy.ndarray) -> ShortLinks | None:
    """The first two rows of links ``[tile, direction, site, 3, 3]``.

    crossing: `edges` by tiles, ``[tile, direction, site]``. None where a third row does not follow from the
    others to 32 roundings, as where a link is zero.
    """
    factors = _factors(tiles, crossing)
    rebuilt = _of_links(factors, crossing)[..., None] * _cross(tiles)
    limit = 32 * np.finfo(tiles.dtype).eps * cupy.linalg.norm(tiles[..., 0, :], axis=-1)[..., None]
    if not (cupy.abs(rebuilt - tiles[..., 2, :]) <= limit).all():
        return None
    return ShortLinks(cupy.ascontiguousarray(tiles[..., :2, :]), factors)


def eight_reals(tiles: cupy.ndarray, crossing: cupy.ndarray) -> ShortLinks | None:
    """U_01, U_02, U_10 and the phases of U_00 and U_20 over pi of links ``[tile, direction, site, 3, 3]``.

    Moduli come from the lengths of row and column, with few digits where they are small, as noted in
    arXiv:0911.3191. None where a link is not rebuilt to 8 roots of the rounding error.
    """
    factors = _factors(tiles, crossing)
    u = tiles * _of_links(factors, crossing)[..., None, None]
    phases = cupy.angle(u[..., 0, 0]) / np.pi + 1j * cupy.angle(u[..., 2, 0]) / np.pi
    reals = cupy.stack([u[..., 0, 1], u[..., 0, 2], u[..., 1, 0], phases], axis=-1).astype(tiles.dtype)
    limit = 8 * np.finfo(tiles.dtype).eps ** 0.5
    if not (cupy.abs(_rebuilt(reals) - u[..., :2, :]) <= limit).all():
        return None
    return ShortLinks(reals, factors)


def _cross(links: cupy.ndarray) -> cupy.ndarray:
    """conj(row 0 x row 1)."""
    first, second = links[..., 0, :], links[..., 1, :]
    cross = first[..., FOLLOWING] * second[..., BEFORE] - first[..., BEFORE] * second[..., FOLLOWING]
    return cross.conj()


def _factors(tiles: cupy.ndarray, crossing: cupy.ndarray) -> cupy.ndarray:
    """Factors of the links, taken from one link of each kind: whether they hold for all is for the caller."""
    factors = np.ones(NAIVE_DIRECTIONS + 4)
    for d in range(NAIVE_DIRECTIONS):
        links = tiles[:, d].reshape(-1, 3, 3)
        across = crossing[:, d].ravel()
        chosen = links[cupy.stack([(~across).argmax(), across.argmax()])].astype(complex)
        third, cross = cupy.asnumpy(chosen[:, 2]), cupy.asnumpy(_cross(chosen))
        with np.errstate(invalid="ignore"):  # a link that is zero has no factor, and fits none
            inside, edge = (third * cross.conj()).sum(axis=-1).real / (abs(cross) ** 2).sum(axis=-1)
        factors[d], factors[NAIVE_DIRECTIONS + d // 2] = inside, edge / inside
    return cupy.asarray(factors, tiles.real.dtype)


def _of_links(factors: cupy.ndarray, crossing: cupy.ndarray) -> cupy.ndarray:
    """Factor f of each link ``[tile, direction, site]``."""
    inside, edge = factors[:NAIVE_DIRECTIONS], factors[NAIVE_DIRECTIONS:].repeat(2)
    return cupy.where(crossing, (inside * edge)[:, None], inside[:, None])


def _rebuilt(reals: cupy.ndarray) -> cupy.ndarray:
    """Two rows ``[..., 2, 3]`` from 8 reals, as SU3Links8 of su3_links.cuh makes them."""
    a1, a2, b0, phases = (reals[..., k] for k in range(4))
    norm2 = cupy.abs(a1) ** 2 + cupy.abs(a2) ** 2
    a0 = cupy.sqrt(cupy.maximum(1 - norm2, 0)) * cupy.exp(1j * np.pi * phases.real)
    column = 1 - norm2 + cupy.abs(b0) ** 2
    c0 = cupy.sqrt(cupy.maximum(1 - column, 0)) * cupy.exp(1j * np.pi * phases.imag)
    t = a0.conj() * b0
    b1 = -((a2 * c0).conj() + a1 * t) / norm2
    b2 = ((a1 * c0).conj() - a2 * t) / norm2
    return cupy.stack([cupy.stack([a0, a1, a2], -1), cupy.stack([b0, b1, b2], -1)], -2)
