"""Transfer of multigrid fields between sites and aggregates: P, block diagonal, and P^H."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.lqcd.kernels.coarse_operands import check_aggregation, check_transfer
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_blocks

MOST_VECTORS = None
"""Near-null vectors that a level may have: any number."""


@dataclass(frozen=True)
class PackedVectors:
    """Vectors ``[aggregate, chirality, m, vectors]``, m = sites of an aggregate times components, as below.

    sites: int32 ``[aggregate, site]``, where each block of components lies; fine_sites: sites of a field.
    """

    vectors: Array
    sites: Array
    fine_sites: int

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.vectors.dtype)

    @property
    def components(self) -> int:
        """Components of one chirality at a fine site."""
        return self.vectors.shape[2] // self.sites.shape[1]

    @property
    def aggregate_count(self) -> int:
        return len(self.vectors)

    @property
    def vector_count(self) -> int:
        return self.vectors.shape[3]


def pack(vectors: Array, sites: Array, fine_sites: int) -> PackedVectors:
    """Vectors and int32 sites as in `PackedVectors` in this backend's layout; each site at most once.

    `vectors` may be a part of the third axis of a C-contiguous array. Raises InputError.
    """
    check_aggregation(vectors, sites, fine_sites)
    return PackedVectors(vectors, array_module(vectors).asarray(sites), fine_sites)


def gram(vectors: Array) -> Array:
    """V^H V of C-contiguous matrices V ``[..., m, k]``: complex128 ``[..., k, k]``, summed in double.

    Products too are in double, which those of `batched_basis.project` need not be. Raises InputError.
    """
    check_blocks(vectors=vectors)
    # of the real and the imaginary parts as columns: no conjugate copy of V
    parts = vectors.view(vectors.real.dtype).astype(np.float64)
    products = parts.swapaxes(-1, -2) @ parts
    real, imaginary = products[..., ::2, :], products[..., 1::2, :]
    return real[..., ::2] + imaginary[..., 1::2] + 1j * (real[..., 1::2] - imaginary[..., ::2])


def restrict(packed: PackedVectors, x: Array, out: Array) -> Array:
    """``out = P^H x``: x ``[site, 2 n, N]``, out ``[aggregate, 2 vectors, N]``. Returns `out`.

    Raises InputError.
    """
    check_transfer(packed, x, out)
    count, per_aggregate = packed.sites.shape
    blocks = x[packed.sites].reshape(count, per_aggregate, 2, packed.components, -1)
    rows = blocks.swapaxes(1, 2).reshape(count, 2, per_aggregate * packed.components, -1)
    # the narrower factor is the one to conjugate: a copy
    out[...] = (packed.vectors.swapaxes(-1, -2) @ rows.conj()).conj().reshape(out.shape)
    return out


def add_prolonged(packed: PackedVectors, coarse: Array, out: Array) -> Array:
    """``out += P coarse``, shapes as for `restrict`; other sites are left alone. Returns `out`.

    Raises InputError.
    """
    check_transfer(packed, out, coarse)
    count, per_aggregate = packed.sites.shape
    rows = packed.vectors @ coarse.reshape(count, 2, packed.vector_count, -1)
    blocks = rows.reshape(count, 2, per_aggregate, packed.components, -1).swapaxes(1, 2)
    out[packed.sites] += blocks.reshape(count, per_aggregate, *out.shape[1:])
    return out
