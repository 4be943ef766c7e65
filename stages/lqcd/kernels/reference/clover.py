"""Batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stages.lqcd.kernels.clover import ADJOINT, GENERAL, HERMITIAN
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.expressions import hermitian_inverse, is_finite
from stages.lqcd.kernels.expressions import inverse as inverse_matrices


@dataclass(frozen=True)
class PackedClover:
    """Matrices ``[site, chirality, 6, 6]`` of the sites of one parity."""

    sites: int
    dtype: np.dtype
    blocks: Array
    kind: int = HERMITIAN


def pack(blocks: Array, constant: float = 0.0) -> PackedClover:
    return PackedClover(
        len(blocks), np.dtype(blocks.dtype), blocks + constant * np.eye(6, dtype=blocks.dtype)
    )


def inverse(packed: PackedClover) -> PackedClover | None:
    inverses = hermitian_inverse(packed.blocks)
    return replace(packed, blocks=inverses) if is_finite(inverses) else None


def twisted(packed: PackedClover, mu: float, inverted: bool) -> PackedClover:
    C, one = packed.blocks, np.eye(6)
    twist = 1j * mu * np.array([1, -1])[:, None, None] * one
    blocks = (C - twist) @ inverse_matrices(C @ C + mu**2 * one) if inverted else C + twist
    return replace(packed, blocks=blocks.astype(packed.dtype), kind=GENERAL)


def astype(packed: PackedClover, dtype: np.dtype) -> PackedClover:
    return replace(packed, dtype=dtype, blocks=packed.blocks.astype(dtype))


def multiply(packed: PackedClover, x: Array, out: Array) -> Array:
    out[...] = product(packed, x)
    return out


def product(packed: PackedClover, x: Array) -> Array:
    blocks = packed.blocks.conj().swapaxes(-1, -2) if packed.kind == ADJOINT else packed.blocks
    return (blocks @ x.reshape(len(x), 2, 6, -1)).reshape(x.shape)
