"""Gathers and matrix products of all aggregates at once."""

from __future__ import annotations

from stages.lqcd.kernels.aggregation import PackedVectors
from stages.lqcd.kernels.dispatch import Array


def restrict(packed: PackedVectors, x: Array, out: Array) -> Array:
    count, per_aggregate = packed.sites.shape
    blocks = x[packed.sites].reshape(count, per_aggregate, 2, packed.components, -1)
    rows = blocks.swapaxes(1, 2).reshape(count, 2, per_aggregate * packed.components, -1)
    # the narrower factor is the one to conjugate: a copy
    out[...] = (packed.vectors.swapaxes(-1, -2) @ rows.conj()).conj().reshape(out.shape)
    return out


def add_prolonged(packed: PackedVectors, coarse: Array, out: Array) -> Array:
    count, per_aggregate = packed.sites.shape
    rows = packed.vectors @ coarse.reshape(count, 2, packed.vector_count, -1)
    blocks = rows.reshape(count, 2, per_aggregate, packed.components, -1).swapaxes(1, 2)
    out[packed.sites] += blocks.reshape(count, per_aggregate, *out.shape[1:])
    return out
