"""Transfer of multigrid fields between sites and aggregates: P, block diagonal, and P^H."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array, check_blocks

MOST_ON_GPU = 64
"""Near-null vectors that a level may have on a GPU: they are relaxed as one block of right-hand sides."""


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
    """Vectors and int32 sites as in `PackedVectors`, laid out for the kernels; each site at most once.

    `vectors` may be a part of the third axis of a C-contiguous array; on a GPU they are complex64. `sites`
    may lie on the host, which waits for others to check them. Raises InputError.
    """
    _check_vectors(vectors, sites, fine_sites)
    return kernel("aggregation.pack", type(vectors))(vectors, sites, fine_sites)


def for_products(packed: PackedVectors) -> Any:
    """Vectors for `restrict` and `add_prolonged` alone, kept in no order but what these read."""
    return kernel("aggregation.for_products", type(packed.vectors))(packed)


def gram(vectors: Array) -> Array:
    """V^H V of C-contiguous matrices V ``[..., m, k]``: complex128 ``[..., k, k]``, summed in double.

    Products too are in double, which those of `batched_basis.project` need not be. On a GPU V is complex64
    with at most `MOST_ON_GPU` columns. Raises InputError.
    """
    check_blocks(vectors=vectors)
    return kernel("aggregation.gram", type(vectors))(vectors)


def inverse_root(gram: Array) -> Array:
    """L^-H of Gram matrices G = V^H V = L L^H ``[..., k, k]``: V L^-H is orthonormal.

    G is scaled to a unit diagonal first. NaN where G is not positive, on a host everywhere.
    """
    return kernel("aggregation.inverse_root", type(gram))(gram)


def combined(vectors: Array, matrices: Array) -> Array:
    """V A of vectors V ``[..., m, k]`` and matrices A ``[..., k, k]``, rounded to V's precision first."""
    return kernel("aggregation.combined", type(vectors))(vectors, matrices)


def gather(fields: Array, sites: Array, out: Array) -> None:
    """Fields ``[site, 2 n, k]`` cut into aggregates and chiralities: `out`, vectors as in `PackedVectors`.

    sites: int ``[aggregate, site]``, on the host for NumPy, on the device for CuPy.
    """
    kernel("aggregation.gather", type(fields))(fields, sites, out)


def scattered(vectors: Array, sites: Array, out: Array) -> None:
    """Write vectors as in `PackedVectors` into fields ``[site, 2 n, 2 k]`` that are zero elsewhere.

    Column c k + i is vector i in chirality c; what lies in the other chirality is left alone.
    """
    kernel("aggregation.scattered", type(vectors))(vectors, sites, out)


def cut(vectors: Array, places: Array, per_aggregate: int) -> Array:
    """A copy of vectors on some of the `per_aggregate` sites of aggregates, int ``[aggregate, place]``."""
    return kernel("aggregation.cut", type(vectors))(vectors, places, per_aggregate)


def restrict(packed: PackedVectors, x: Array, out: Array) -> Array:
    """``out = P^H x``: x ``[site, 2 n, N]``, out ``[aggregate, 2 vectors, N]``. Returns `out`.

    Raises InputError.
    """
    _check_transfer(packed, x, out)
    return kernel("aggregation.restrict", type(x))(packed, x, out)


def add_prolonged(packed: PackedVectors, coarse: Array, out: Array) -> Array:
    """``out += P coarse``, shapes as for `restrict`; other sites are left alone. Returns `out`.

    Raises InputError.
    """
    _check_transfer(packed, out, coarse)
    return kernel("aggregation.add_prolonged", type(out))(packed, coarse, out)


def _check_vectors(vectors: Array, sites: Array, fine_sites: int) -> None:
    """Raise InputError unless vectors are complex ``[aggregate, 2, m, k]`` and sites fit m and the field."""
    if vectors.dtype not in (np.complex64, np.complex128):
        raise InputError(f"vectors of aggregates must be complex64 or complex128, got {vectors.dtype}")
    if vectors.ndim != 4 or vectors.shape[1] != 2:
        raise InputError(
            f"vectors of aggregates have shape (aggregates, 2 chiralities, m, vectors), got {vectors.shape}"
        )
    if vectors.strides[3] != vectors.itemsize or vectors.strides[2] != vectors.itemsize * vectors.shape[3]:
        raise InputError(f"the rows of aggregates must be contiguous, got strides {vectors.strides}")
    if sites.dtype != np.int32 or sites.ndim != 2 or not sites.flags.c_contiguous:
        raise InputError(
            f"sites must be C-contiguous int32 [aggregate, site], got {sites.dtype} {sites.shape}"
        )
    if len(sites) != len(vectors) or vectors.shape[2] % sites.shape[1]:
        raise InputError(f"sites {sites.shape} do not fit vectors {vectors.shape}")
    if int(sites.min()) < 0 or int(sites.max()) >= fine_sites:
        raise InputError(f"sites must lie between 0 and {fine_sites - 1}, got {sites.min()} to {sites.max()}")


def _check_transfer(packed: PackedVectors, fine: Array, coarse: Array) -> None:
    """Raise InputError unless the fields are ``[site, 2 n, N]`` and ``[aggregate, 2 k, N]``."""
    if fine.ndim != 3:
        raise InputError(f"a field must have shape (sites, components, right-hand sides), got {fine.shape}")
    shape = (packed.fine_sites, 2 * packed.components, fine.shape[2])
    check_array("the fine field", fine, shape, packed.dtype)
    shape = (packed.aggregate_count, 2 * packed.vector_count, fine.shape[2])
    check_array("the coarse field", coarse, shape, packed.dtype)
