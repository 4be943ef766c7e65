"""One matrix product a site, of gathered neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module

HALF_ROWS, LARGEST = 16, 15
"""Rows with one scale, by which the largest number is below 2^15."""

DROPPED = 1 << 13
"""Of the bits of a number in single precision, the unit of tf32."""


@dataclass(frozen=True)
class PackedCoarseLinks:
    """Matrices as rows ``[site, n, direction * n]``, int32 neighbours ``[site, direction]`` of output sites.

    input_sites: how many sites an input has at least.
    """

    rows: Array
    neighbours: Array
    input_sites: int

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.rows.dtype)

    @property
    def components(self) -> int:
        return self.rows.shape[1]


def pack(links: Array, neighbours: Array) -> PackedCoarseLinks:
    xp, (sites, directions, n, _) = array_module(links), links.shape
    rows = xp.ascontiguousarray(links.swapaxes(1, 2)).reshape(sites, n, directions * n)
    return PackedCoarseLinks(rows, xp.asarray(neighbours), int(neighbours.max()) + 1)


@dataclass(frozen=True)
class PackedHalfLinks(PackedCoarseLinks):
    """Matrices whose numbers are fp16 with a scale, as a GPU has them."""


def pack_half(links: Array, neighbours: Array) -> PackedCoarseLinks:
    packed = pack(links, neighbours)
    if links.dtype == np.complex128:
        return packed
    sites, n, terms = packed.rows.shape
    rows = np.zeros((sites, -(-n // HALF_ROWS) * HALF_ROWS, terms), links.dtype)
    rows[:, :n] = packed.rows
    groups = rows.view(np.float32).reshape(sites, -1, HALF_ROWS * 2 * terms)
    exponents = np.frexp(abs(groups).max(axis=-1, keepdims=True))[1]
    codes = np.ldexp(groups, LARGEST - exponents).astype(np.float16)
    groups[...] = np.ldexp(codes.astype(np.float32), exponents - LARGEST)
    return PackedHalfLinks(rows[:, :n], packed.neighbours, packed.input_sites)


def coarse_dslash(
    packed: PackedCoarseLinks,
    x: Array,
    out: Array,
    *,
    diagonal: Array | None = None,
    a: float = 0.0,
    b: float = 1.0,
) -> Array:
    sites, _, terms = packed.rows.shape
    if isinstance(packed, PackedHalfLinks):
        x = _as_tf32(x)
    total = b * (packed.rows @ x[packed.neighbours].reshape(sites, terms, -1))
    out[...] = total if diagonal is None else a * diagonal + total
    return out


def _as_tf32(x: Array) -> Array:
    """Numbers rounded to 11 significant bits, ties away from zero."""
    bits = x.view(np.uint32) + np.uint32(DROPPED // 2)
    return (bits & ~np.uint32(DROPPED - 1)).view(x.dtype)
