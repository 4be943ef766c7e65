"""Batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.expressions import hermitian_inverse, is_finite


@dataclass(frozen=True)
class PackedClover:
    """Hermitian matrices ``[site, chirality, 6, 6]`` of the sites of one parity."""

    sites: int
    dtype: np.dtype
    blocks: Array


def pack(blocks: Array, constant: float = 0.0) -> PackedClover:
    return PackedClover(
        len(blocks), np.dtype(blocks.dtype), blocks + constant * np.eye(6, dtype=blocks.dtype)
    )


def inverse(packed: PackedClover) -> PackedClover | None:
    inverses = hermitian_inverse(packed.blocks)
    return replace(packed, blocks=inverses) if is_finite(inverses) else None


def astype(packed: PackedClover, dtype: np.dtype) -> PackedClover:
    return replace(packed, dtype=dtype, blocks=packed.blocks.astype(dtype))


def multiply(packed: PackedClover, x: Array, out: Array) -> Array:
    out[...] = product(packed, x)
    return out


def product(packed: PackedClover, x: Array) -> Array:
    return (packed.blocks @ x.reshape(len(x), 2, 6, -1)).reshape(x.shape)
