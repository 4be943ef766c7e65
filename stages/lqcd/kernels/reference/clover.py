"""Products with the site-local, Hermitian, chirality-diagonal matrices of the clover term."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.operands import check_clover, check_clover_blocks


@dataclass(frozen=True)
class PackedClover:
    """Hermitian matrices ``[site, chirality, 6, 6]`` of the sites of one parity."""

    sites: int
    dtype: np.dtype
    blocks: Array


def pack(blocks: Array) -> PackedClover:
    """Complex Hermitian ``[site, 2, 6, 6]`` in this backend's layout; InputError on a wrong shape."""
    check_clover_blocks(blocks)
    return PackedClover(len(blocks), np.dtype(blocks.dtype), blocks)


def multiply(packed: PackedClover, x: Array, out: Array) -> Array:
    """``out = C x`` at every site; ``[site, 12, N]``, `out` may be `x`. Returns `out`. Raises InputError."""
    check_clover(packed, x, out)
    out[...] = product(packed, x)
    return out


def product(packed: PackedClover, x: Array) -> Array:
    return (packed.blocks @ x.reshape(len(x), 2, 6, -1)).reshape(x.shape)
