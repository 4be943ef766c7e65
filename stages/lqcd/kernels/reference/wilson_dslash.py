"""Gathers and products with link and projector, a direction at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS, neighbour_table
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.gamma import COLOURS, GAMMA, SPINS
from stages.lqcd.kernels.link_forms import WilsonForm
from stages.lqcd.kernels.reference.clover import PackedClover, product
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
    """Links ``[site, 8, 3, 3]`` into the sites of `parity`, and int32 neighbours ``[site, 8]``.

    Directions d = 2 mu + hop: hop 0 carries U_mu(x), hop 1 carries -U_mu(x-mu)^dag.
    """

    lattice: Lattice
    parity: int
    dtype: np.dtype
    links: Array
    neighbours: Array


def pack(links: Array, lattice: Lattice, parity: int) -> PackedLinks:
    neighbours = array_module(links).asarray(neighbour_table(lattice, parity, NAIVE_DIRECTIONS))
    return PackedLinks(lattice, parity, np.dtype(links.dtype), links, neighbours)


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
    doubled = np.empty((lattice.half_volume, NAIVE_DIRECTIONS, 3, 3), dtype)
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
    hops = (_hop(packed, d, field, sign) for d in range(NAIVE_DIRECTIONS))
    total = sum(hops, np.zeros_like(field))
    result = b * (product(matrices, total) if matrices and place == "hop" else total)
    if diagonal is not None:
        added = whole(diagonal)
        result = result + a * (product(matrices, added) if matrices and place == "diagonal" else added)
    put(out, result)
    return out


def wilson_hop(packed: PackedLinks, direction: int, x: Array, out: Array, *, sign: int = 1) -> Array:
    out[...] = _hop(packed, direction, x, sign)
    return out


def _hop(packed: PackedLinks, direction: int, x: Array, sign: int) -> Array:
    mu, backward = divmod(direction, 2)
    neighbours = x[packed.neighbours[:, direction]].reshape(len(x), SPINS, COLOURS, -1)
    carried = packed.links[:, None, direction] @ neighbours
    # the backward links carry a minus sign: -(1 + sign gamma) (-U^dag); a row of gamma has one element
    phases = array_module(x).asarray((sign * PHASES[mu, :, None, None]).astype(packed.dtype))
    return ((-carried if backward else carried) - phases * carried[:, COLUMNS[mu]]).reshape(x.shape)
