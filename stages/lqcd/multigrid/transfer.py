"""Prolongation P from near-null vectors, P^H P = 1, and restriction P^H.

P is block diagonal: an aggregate and chirality of the fine grid, m = (sites of an aggregate) n components, is
spanned by the near-null vectors cut to it, made orthonormal. Cutting by chirality makes P commute with
gamma5, so that the coarse operator is gamma5-Hermitian and inherits the stability of the fine one
(arXiv:1005.3043, section III).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial
from operator import matmul

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import aggregation, block_blas, coarse_dslash
from stages.lqcd.kernels.aggregation import PackedVectors
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import assign, of_rows, on_rows
from stages.lqcd.multigrid.grid import Aggregates, on_grid, zeros_on_grid


@dataclass(frozen=True, eq=False)
class Transfer:
    """P, or some of its rows, packed for products with fields (`stages.lqcd.kernels.aggregation`).

    Fine fields are ``[site, 2 n, N]`` on the sites of `packed`, or on the first half of them, the even ones,
    and zero on the others; coarse ones are ``[aggregate, 2 k, N]``.
    """

    aggregates: Aggregates
    packed: PackedVectors

    def restrict(self, x: Array) -> Array:
        """P^H x."""
        if 2 * len(x) == self.packed.fine_sites:
            whole = zeros_on_grid(self.aggregates.fine, x, x.shape[1:])
            assign(whole[: len(x)], x)
            x = whole
        shape = (2 * self.packed.vector_count, x.shape[-1])
        return aggregation.restrict(self.packed, x, on_grid(self.aggregates.coarse, x, shape))

    def add_prolonged(self, coarse: Array, out: Array) -> None:
        """``out += P coarse``."""
        if 2 * len(out) != self.packed.fine_sites:
            aggregation.add_prolonged(self.packed, coarse, out)
            return
        whole = zeros_on_grid(self.aggregates.fine, out, out.shape[1:])
        aggregation.add_prolonged(self.packed, coarse, whole)
        block_blas.add(out, whole[: len(out)])

    def without_vectors(self) -> Transfer:
        """This transfer for products alone: vectors are kept in the orders that their kernels read."""
        return Transfer(self.aggregates, aggregation.for_products(self.packed))


@dataclass(frozen=True, eq=False)
class Prolongation:
    """P by orthonormal vectors ``[aggregate, chirality, m, k]``."""

    aggregates: Aggregates
    vectors: Array

    @property
    def vector_count(self) -> int:
        return self.vectors.shape[-1]

    @cached_property
    def sites(self) -> Array:
        """Fine sites of every aggregate, int32 ``[aggregate, site]``, where the vectors live."""
        return to_device_like(self.aggregates.sites, self.vectors)

    def on_all_sites(self) -> Transfer:
        """P for fields on the whole fine grid."""
        return self._packed(self.vectors, self.aggregates.sites, self.aggregates.fine.sites)

    def for_cycles(self) -> Transfer:
        """P for fields on the even sites; on all, where an aggregate has more sites of one parity."""
        if not self.aggregates.halved:
            return self.on_all_sites()
        half, rows = self.aggregates.volume // 2, self.vectors.shape[2] // 2
        sites = self.aggregates.sites[:, :half]
        return self._packed(self.vectors[:, :, :rows], sites, self.aggregates.fine.sites // 2)

    def on_face(self, mu: int) -> Transfer:
        """P cut to the sites whose neighbour in +mu is beyond their aggregate."""
        places = to_device_like(self.aggregates.faces[mu], self.vectors)
        vectors = aggregation.cut(self.vectors, places, self.aggregates.volume)
        return self._packed(vectors, self.aggregates.face_sites[mu], self.aggregates.fine.sites)

    def columns(self, some: slice) -> Array:
        """P of j vectors as fields ``[site, 2 n, 2 j]``, each of one chirality, zero in the other."""
        vectors = self.vectors[..., some]
        n = vectors.shape[2] // self.aggregates.volume
        fields = zeros_on_grid(self.aggregates.fine, vectors, (2 * n, 2 * vectors.shape[-1]))
        aggregation.scattered(vectors, self.sites, fields)
        return fields

    def _packed(self, vectors: Array, sites: NDArray[np.int32], fine_sites: int) -> Transfer:
        packed = aggregation.pack(vectors, np.ascontiguousarray(sites), fine_sites)
        return Transfer(self.aggregates, packed)


def prolongation(
    aggregates: Aggregates, near_null: Array, passes: int = 2
) -> tuple[Prolongation, Callable[[], Array]]:
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
    return Prolongation(aggregates, vectors), partial(_restricted, gram, inverse, near_null.dtype)


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


Question = tuple[list[bool], str]
"""Answers of `coarse_dslash.is_finite`, and what is to be said where one is no."""

_open_questions: ContextVar[list[Question] | None] = ContextVar("_open_questions", default=None)


def require_finite(matrices: Array, message: str) -> None:
    """Raise InputError with this message where an element is infinite or NaN.

    At the end of a block of `answered_at_end` where the host would have to wait for the answer.
    """
    answers, questions = on_rows(coarse_dslash.is_finite, matrices), _open_questions.get()
    if questions is None or all(isinstance(answer, bool) for answer in answers):
        _check((answers, message))
    else:
        questions.append((answers, message))


@contextmanager
def answered_at_end() -> Iterator[None]:
    """A block at whose end the first `require_finite` in it that failed raises, unless it did so before."""
    questions: list[Question] = []
    token = _open_questions.set(questions)
    try:
        yield
    finally:
        _open_questions.reset(token)
    for question in questions:
        _check(question)


def _check(question: Question) -> None:
    answers, message = question
    if not all(answers):
        raise InputError(message)
