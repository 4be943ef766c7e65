"""The Wilson dslash: sum over directions of spin projector times link times neighbour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.kernels.directions import NAIVE_DIRECTIONS, neighbour_table
from stages.kernels.dispatch import Array, array_module
from stages.kernels.gamma import COLOURS, GAMMA, SPINS
from stages.kernels.operands import check_wilson_dslash, check_wilson_links
from stages.kernels.reference.clover import PackedClover, product
from stages.lattice.geometry import Lattice


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
    """Complex links ``[site, 8, 3, 3]`` (`stages.dirac.doubled_links`) as this package's kernel takes them.

    Raises InputError on a wrong shape.
    """
    check_wilson_links(links, lattice, parity)
    neighbours = array_module(links).asarray(neighbour_table(lattice, parity, NAIVE_DIRECTIONS))
    return PackedLinks(lattice, parity, np.dtype(links.dtype), links, neighbours)


def wilson_dslash(
    packed: PackedLinks,
    x: Array,
    out: Array,
    *,
    sign: int = 1,
    diagonal: Array | None = None,
    a: float = 0.0,
    b: float = 1.0,
    hop_clover: PackedClover | None = None,
    diagonal_clover: PackedClover | None = None,
) -> Array:
    """``out = a C' diagonal + b C D x``; returns `out`.

        D x(s) = sum_mu [ (1 - sign gamma_mu) U_mu(s) x(s+mu) + (1 + sign gamma_mu) U_mu(s-mu)^dag x(s-mu) ]

    sign: 1, or -1 for the adjoint. C: `hop_clover`, C': `diagonal_clover`, or one; at most one of them is
    given. x ``[site, 12, N]`` lives on the opposite parity, out and diagonal on ``packed.parity``; all of one
    dtype. `out` may be `diagonal`, never `x`; otherwise what it held is not read. Raises InputError.
    """
    check_wilson_dslash(packed, x, out, diagonal, sign, hop_clover, diagonal_clover)
    total = sum(_hop(packed, d, x, sign) for d in range(NAIVE_DIRECTIONS))
    result = b * (total if hop_clover is None else product(hop_clover, total))
    if diagonal is not None:
        result = result + a * (diagonal if diagonal_clover is None else product(diagonal_clover, diagonal))
    out[...] = result
    return out


def wilson_hop(packed: PackedLinks, direction: int, x: Array, out: Array, *, sign: int = 1) -> Array:
    """The term of D x that comes from one direction d = 2 mu + hop; arguments as for `wilson_dslash`."""
    check_wilson_dslash(packed, x, out, None, sign, None, None)
    out[...] = _hop(packed, direction, x, sign)
    return out


def _hop(packed: PackedLinks, direction: int, x: Array, sign: int) -> Array:
    mu, backward = divmod(direction, 2)
    neighbours = x[packed.neighbours[:, direction]].reshape(len(x), SPINS, COLOURS, -1)
    carried = packed.links[:, None, direction] @ neighbours
    # the backward links carry a minus sign: -(1 + sign gamma) (-U^dag)
    projector = sign * GAMMA[mu] + np.eye(SPINS) if backward else sign * GAMMA[mu] - np.eye(SPINS)
    spins = array_module(x).asarray(-projector.astype(packed.dtype))
    return array_module(x).einsum("rs,xscn->xrcn", spins, carried).reshape(x.shape)
