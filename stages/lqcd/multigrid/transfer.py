"""Prolongation P from near-null vectors, P^H P = 1, and restriction P^H.

P is block diagonal: an aggregate and chirality of the fine grid, m = (sites of an aggregate) n components, is
spanned by the near-null vectors cut to it, made orthonormal. Cutting by chirality makes P commute with
gamma5, so that the coarse operator is gamma5-Hermitian and inherits the stability of the fine one
(arXiv:1005.3043, section III).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from operator import matmul
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import aggregation, block_blas
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import assign, of_rows
from stages.lqcd.multigrid.fields import on_grid, zeros_on_grid
from stages.lqcd.multigrid.finite import require_finite
from stages.lqcd.multigrid.grid import Aggregates


@dataclass(frozen=True, eq=False)
class CycleTransfer:
    """P as cycles apply it: of the even sites where aggregates are halved, else of all.

    packed: for products with it (`stages.lqcd.kernels.aggregation`).
    """

    aggregates: Aggregates
    packed: Any

    def restrict(self, x: Array) -> Array:
        """P^H x for x ``[site, 2 n, N]`` on the sites of `packed`."""
        shape = (2 * self.packed.vector_count, x.shape[-1])
        return aggregation.restrict(self.packed, x, on_grid(self.aggregates.coarse, x, shape))

    def add_prolonged(self, coarse: Array, out: Array) -> None:
        """``out += P coarse`` on the sites of `packed`."""
        aggregation.add_prolonged(self.packed, coarse, out)

    def restrict_even(self, x: Array) -> Array:
        """P^H x for x ``[even site, 2 n, N]``, zero on odd sites."""
        if self.aggregates.halved:
            return self.restrict(x)
        whole = zeros_on_grid(self.aggregates.fine, x, x.shape[1:])
        assign(whole[: len(x)], x)
        return self.restrict(whole)

    def add_prolonged_even(self, coarse: Array, out: Array) -> None:
        """``out += P coarse`` on the even sites, out ``[even site, 2 n, N]``."""
        if self.aggregates.halved:
            self.add_prolonged(coarse, out)
            return
        whole = zeros_on_grid(self.aggregates.fine, out, out.shape[1:])
        self.add_prolonged(coarse, whole)
        block_blas.add(out, whole[: len(out)])


@dataclass(frozen=True, eq=False)
class Transfer:
    """P of orthonormal vectors ``[aggregate, chirality, m, k]``; coarse fields: ``[aggregate, 2 k, N]``."""

    aggregates: Aggregates
    vectors: Array

    @property
    def vector_count(self) -> int:
        return self.vectors.shape[-1]

    @cached_property
    def sites(self) -> Array:
        """Fine sites of every aggregate, int32 ``[aggregate, site]``, where the vectors live."""
        return to_device_like(self.aggregates.sites, self.vectors)

    def restrict(self, x: Array) -> Array:
        """P^H x for x ``[site, 2 n, N]`` on the whole grid."""
        return self._restrict(self._whole, x)

    def add_prolonged(self, coarse: Array, out: Array) -> None:
        """``out += P coarse`` on the whole grid."""
        aggregation.add_prolonged(self._whole, coarse, out)

    def restrict_even(self, x: Array) -> Array:
        """P^H x for x ``[even site, 2 n, N]``, zero on odd sites."""
        return self._in_cycles.restrict_even(x)

    def add_prolonged_even(self, coarse: Array, out: Array) -> None:
        """``out += P coarse`` on the even sites, out ``[even site, 2 n, N]``."""
        self._in_cycles.add_prolonged_even(coarse, out)

    def for_cycles(self) -> CycleTransfer:
        """P without the vectors where kernels read another order of them."""
        return CycleTransfer(self.aggregates, aggregation.for_products(self._in_cycles.packed))

    def columns(self, some: slice) -> Array:
        """P of j vectors as fields ``[site, 2 n, 2 j]``, each of one chirality, zero in the other."""
        vectors = self.vectors[..., some]
        n = vectors.shape[2] // self.aggregates.volume
        fields = zeros_on_grid(self.aggregates.fine, vectors, (2 * n, 2 * vectors.shape[-1]))
        aggregation.scattered(vectors, self.sites, fields)
        return fields

    def face(self, mu: int) -> Any:
        """P cut to the sites whose neighbour in +mu is beyond their aggregate, packed for `restrict`."""
        places = to_device_like(self.aggregates.faces[mu], self.vectors)
        vectors = aggregation.cut(self.vectors, places, self.aggregates.volume)
        return self._packed(vectors, self.aggregates.face_sites[mu])

    def restrict_packed(self, packed: Any, x: Array) -> Array:
        """The product of `x` with the conjugate of a packed part of P."""
        return self._restrict(packed, x)

    def _restrict(self, packed: Any, x: Array) -> Array:
        shape = (2 * self.vector_count, x.shape[-1])
        return aggregation.restrict(packed, x, on_grid(self.aggregates.coarse, x, shape))

    def _packed(self, vectors: Array, sites: NDArray[np.int32], fine_sites: int | None = None) -> Any:
        return aggregation.pack(
            vectors, np.ascontiguousarray(sites), fine_sites or self.aggregates.fine.sites
        )

    @cached_property
    def _whole(self) -> Any:
        return self._packed(self.vectors, self.aggregates.sites)

    @cached_property
    def _in_cycles(self) -> CycleTransfer:
        return CycleTransfer(self.aggregates, self._even if self.aggregates.halved else self._whole)

    @property
    def _even(self) -> Any:
        half, rows = self.aggregates.volume // 2, self.vectors.shape[2] // 2
        sites = self.aggregates.sites[:, :half]
        return self._packed(self.vectors[:, :, :rows], sites, self.aggregates.fine.sites // 2)


def transfer(
    aggregates: Aggregates, near_null: Array, passes: int = 2
) -> tuple[Transfer, Callable[[], Array]]:
    """P spanned by fields V ``[site, 2 n, k]``, of their dtype; a call gives P^H V ``[aggregate, 2 k, k]``.

    With P = V R^-1 on every aggregate P^H V = R^-H V^H V follows from small matrices. passes: of Cholesky QR;
    the first leaves P^H P - 1 of the condition number of V times the rounding unit, the second none. Raises
    InputError for more vectors than an aggregate has components of one chirality, and where the vectors are
    linearly dependent on an aggregate.
    """
    per_aggregate = aggregates.volume
    n, k = near_null.shape[1] // 2, near_null.shape[2]
    if k > per_aggregate * n:
        raise InputError(
            f"an aggregate of {per_aggregate} sites has {per_aggregate * n} components of each chirality, "
            f"fewer than the {k} near-null vectors: take fewer vectors or larger aggregates"
        )
    vectors = on_grid(aggregates.coarse, near_null, (2, per_aggregate * n, k))
    aggregation.gather(near_null, to_device_like(aggregates.sites, near_null), vectors)
    gram = aggregation.gram(vectors)
    vectors, inverse = _orthonormalised(vectors, gram)
    for _ in range(passes - 1):
        vectors, factor = _orthonormalised(vectors, aggregation.gram(vectors))
        inverse = of_rows(matmul, inverse, factor)
    return Transfer(aggregates, vectors), partial(_restricted, gram, inverse, near_null.dtype)


def _restricted(gram: Array, inverse: Array, dtype: DTypeLike) -> Array:
    """R^-H G of every aggregate and chirality."""

    def product(gram: Array, inverse: Array) -> Array:
        return (inverse.conj().swapaxes(-1, -2) @ gram).astype(dtype)

    aggregates, chiralities, k, _ = gram.shape
    return of_rows(product, gram, inverse).reshape(aggregates, chiralities * k, k)


def _orthonormalised(vectors: Array, gram: Array) -> tuple[Array, Array]:
    """Q and R^-1 of the Cholesky QR of every matrix ``[..., m, k]``: G = V^H V = R^H R, Q = V R^-1."""
    inverse = aggregation.inverse_root(gram)
    require_finite(
        inverse,
        "near-null vectors are linearly dependent on an aggregate: take fewer vectors, larger "
        "aggregates, fewer refinements or a larger mass: where there is a zero mode, all become alike",
    )
    return aggregation.combined(vectors, inverse), inverse
