"""All directions in one batched product per site: links ``[3, 24]`` times projected spinors ``[24, 4 N]``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS, neighbour_table
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.gamma import COLOURS, GAMMA, SPINS
from stages.lqcd.kernels.link_forms import WilsonForm
from stages.lqcd.kernels.reference.clover import PackedClover, product
from stages.lqcd.kernels.reference.hisq_dslash import SLAB
from stages.lqcd.kernels.reference.link_fields import doubled_links
from stages.lqcd.kernels.reference.short_numbers import put, whole
from stages.lqcd.kernels.short_numbers import Spinors
from stages.lqcd.kernels.wilson_dslash import Weights
from stages.lqcd.lattice.geometry import Lattice

COLUMNS = np.abs(GAMMA).argmax(axis=2)
PHASES = np.take_along_axis(np.array(GAMMA), COLUMNS[..., None], axis=2)[..., 0]
"""Place and value of the only element of each row of gamma, ``[mu, row]``."""


@dataclass(frozen=True)
class PackedLinks:
    """Links ``[site, 3, 24]`` into the sites of `parity`, and int32 neighbours ``[site, 8]``.

    Directions d = 2 mu + hop: hop 0 carries U_mu(x), hop 1 carries -U_mu(x-mu)^dag.
    """

    lattice: Lattice
    parity: int
    dtype: np.dtype
    links: Array
    neighbours: Array


def pack(links: Array, lattice: Lattice, parity: int) -> PackedLinks:
    neighbours = array_module(links).asarray(neighbour_table(lattice, parity, NAIVE_DIRECTIONS))
    rows = links.swapaxes(1, 2).reshape(len(links), COLOURS, -1)
    return PackedLinks(lattice, parity, np.dtype(links.dtype), rows, neighbours)


def pack_fields(
    links: Array,
    weights: Weights,
    lattice: Lattice,
    parity: int,
    dtype: np.dtype,
    form: WilsonForm = WilsonForm.MATRICES,
) -> PackedLinks:
    if weights != (1.0,) * 4:
        links = links * np.reshape(weights, (4, 1, 1, 1, 1))
    doubled = np.empty((lattice.half_volume, 3, NAIVE_DIRECTIONS, 3), dtype).swapaxes(1, 2)
    doubled_links(links, None, lattice, parity, doubled)
    return pack(doubled, lattice, parity)


def wilson_dslash(
    packed: PackedLinks,
    x: Spinors,
    out: Spinors,
    *,
    sign: int = 1,
    diagonal: Spinors | None = None,
    a: float = 0.0,
    b: float = 1.0,
    clover: tuple[str, PackedClover] | None = None,
) -> Spinors:
    field, (place, matrices) = whole(x), clover or ("", None)
    spinors = _by_colour(field)
    total = np.empty_like(field)
    for low in range(0, len(field), SLAB):
        sites = slice(low, low + SLAB)
        hops = [_projected(packed, sites, direction, spinors, sign) for direction in range(NAIVE_DIRECTIONS)]
        total[sites] = _multiplied(packed.links[sites], np.stack(hops, axis=1), field[sites])
    result = b * (product(matrices, total) if matrices and place == "hop" else total)
    if diagonal is not None:
        added = whole(diagonal)
        result = result + a * (product(matrices, added) if matrices and place == "diagonal" else added)
    put(out, result)
    return out


def wilson_hop(packed: PackedLinks, direction: int, x: Array, out: Array, *, sign: int = 1) -> Array:
    links = packed.links.reshape(len(x), COLOURS, NAIVE_DIRECTIONS, COLOURS)[:, :, direction]
    out[...] = _multiplied(links, _projected(packed, slice(None), direction, _by_colour(x), sign), x)
    return out


def _by_colour(x: Array) -> Array:
    """Spinors ``[site, 3, 4, N]``."""
    return x.reshape(len(x), SPINS, COLOURS, -1).swapaxes(1, 2).copy()


def _projected(packed: PackedLinks, sites: slice, direction: int, spinors: Array, sign: int) -> Array:
    """The neighbours times 1 - sign gamma, or those behind times -(1 + sign gamma)."""
    mu, backward = divmod(direction, 2)
    phases = array_module(spinors).asarray((sign * PHASES[mu, :, None]).astype(spinors.dtype))
    there = spinors[packed.neighbours[sites, direction]]
    turned = phases * there[:, :, COLUMNS[mu]]  # a row of gamma has one element
    return (-there if backward else there) - turned


def _multiplied(links: Array, around: Array, x: Array) -> Array:
    """Links ``[site, 3, n]`` times spinors of as many colours in all, as a field like `x`."""
    made = links @ around.reshape(len(x), links.shape[-1], -1)
    return made.reshape(len(x), COLOURS, SPINS, -1).swapaxes(1, 2).reshape(x.shape)
