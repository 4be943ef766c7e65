"""The Wilson dslash: sum over directions of spin projector times link times neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS, neighbour_table
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, GAMMA, SPINS
from stages.lqcd.kernels.half_field import HalfField, check_half_fields, halved, whole
from stages.lqcd.kernels.operands import check_wilson_dslash, check_wilson_links
from stages.lqcd.kernels.reference.clover import PackedClover, product
from stages.lqcd.lattice.geometry import Lattice


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
    """Complex links ``[site, 8, 3, 3]`` (`stages.lqcd.dirac.doubled_links`) as this package's kernel takes
    them.

    Raises InputError on a wrong shape.
    """
    check_wilson_links(links, lattice, parity)
    neighbours = array_module(links).asarray(neighbour_table(lattice, parity, NAIVE_DIRECTIONS))
    return PackedLinks(lattice, parity, np.dtype(links.dtype), links, neighbours)


def to_half(field: Array, out: HalfField | None = None) -> HalfField:
    """complex64 ``[site, 12, N]`` in 16 bits, a scale per site and right-hand side; InputError for others."""
    return halved(field, COMPONENTS, out)


def from_half(field: HalfField, out: Array | None = None) -> Array:
    """The complex64 ``[site, 12, N]`` that a HalfField holds."""
    return whole(field, out)


def wilson_dslash(
    packed: PackedLinks,
    x: Array | HalfField,
    out: Any,
    *,
    sign: int = 1,
    diagonal: Array | None = None,
    a: float = 0.0,
    b: float = 1.0,
    hop_clover: PackedClover | None = None,
    diagonal_clover: PackedClover | None = None,
) -> Any:
    """``out = a C' diagonal + b C D x``; returns `out`.

        D x(s) = sum_mu [ (1 - sign gamma_mu) U_mu(s) x(s+mu) + (1 + sign gamma_mu) U_mu(s-mu)^dag x(s-mu) ]

    sign: 1, or -1 for the adjoint. C: `hop_clover`, C': `diagonal_clover`, or one; at most one of them is
    given. x ``[site, 12, N]`` lives on the opposite parity, out and diagonal on ``packed.parity``; all of one
    dtype. `out` may be `diagonal`, never `x`; otherwise what it held is not read. Raises InputError.

    With complex64 links x may be a HalfField; out is one then, without a diagonal, or complex64 as it is.
    """
    if isinstance(x, HalfField):
        terms = {"sign": sign, "hop_clover": hop_clover, "diagonal_clover": diagonal_clover}
        return through_single(wilson_dslash, packed, x, out, diagonal=diagonal, a=a, b=b, **terms)
    check_wilson_dslash(packed, x, out, diagonal, sign, hop_clover, diagonal_clover)
    total = sum(_hop(packed, d, x, sign) for d in range(NAIVE_DIRECTIONS))
    result = b * (total if hop_clover is None else product(hop_clover, total))
    if diagonal is not None:
        result = result + a * (diagonal if diagonal_clover is None else product(diagonal_clover, diagonal))
    out[...] = result
    return out


def through_single(
    dslash: Callable[..., Array],
    packed: Any,
    x: HalfField,
    out: Any,
    *,
    diagonal: Array | None,
    **terms: Any,
) -> Any:
    """`dslash`, a package's `wilson_dslash` of complex64 fields, applied to a field of 16 bits.

    A processor gains little from 16 bits; results should be those of the GPU.
    """
    check_half_fields(packed, x, out, diagonal, COMPONENTS)
    values = from_half(x)
    if not isinstance(out, HalfField):
        return dslash(packed, values, out, diagonal=diagonal, **terms)
    return to_half(dslash(packed, values, array_module(values).empty_like(values), **terms), out)


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
