"""Batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.lqcd.kernels.dispatch import Array


@dataclass(frozen=True)
class PackedClover:
    """Hermitian matrices ``[site, chirality, 6, 6]`` of the sites of one parity."""

    sites: int
    dtype: np.dtype
    blocks: Array


def pack(blocks: Array) -> PackedClover:
    return PackedClover(len(blocks), np.dtype(blocks.dtype), blocks)


def multiply(packed: PackedClover, x: Array, out: Array) -> Array:
    out[...] = product(packed, x)
    return out


def product(packed: PackedClover, x: Array) -> Array:
    return (packed.blocks @ x.reshape(len(x), 2, 6, -1)).reshape(x.shape)
