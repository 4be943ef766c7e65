"""Grids of multigrid levels, their division into aggregates, and the transfer P between a grid and the next.

On every level a field is ``[site, 2 n, N]``: chirality + in the first n components, chirality - in the
others. Sites are numbered as on the fine lattice (`stages.lqcd.lattice.geometry`), all even ones first, where
all extents are even, and lexicographically with x fastest otherwise. Neighbours wrap around: where an extent
is 2 both neighbours are one site, where it is 1 they are the site itself.

The prolongation P, P^H P = 1, is block diagonal: an aggregate and chirality of the fine grid, m = (sites of
an aggregate) n components, is spanned by the near-null vectors cut to it, made orthonormal; P^H restricts.
Cutting by chirality makes P commute with gamma5, so that the coarse operator is gamma5-Hermitian and inherits
the stability of the fine one (arXiv:1005.3043, section III).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from numbers import Integral
from operator import matmul
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import aggregation, block_blas, coarse_dslash, random_numbers
from stages.lqcd.kernels.aggregation import PackedVectors
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import assign, empty_rows, field_like, of_rows, on_rows, zero_rows
from stages.lqcd.lattice.geometry import DIRECTIONS

Extents = tuple[int, int, int, int]

HOPS = 8
"""Directions d = 2 mu + hop: hop 0 leads to x + mu, hop 1 to x - mu."""

SHARED_SITES = 2048
"""A grid with fewer sites lies on the first GPU: launches of a few microseconds do not wait for others."""


def four_extents(name: str, extents: Any) -> Extents:
    """The extents (x, y, z, t). Raises InputError unless they are four whole numbers of at least 1."""
    if np.shape(extents) != (4,) or not all(isinstance(n, Integral) and int(n) >= 1 for n in extents):
        raise InputError(
            f"{name} has four extents (x, y, z, t), whole numbers of at least 1, got {extents!r}"
        )
    x, y, z, t = map(int, extents)
    return x, y, z, t


@dataclass(frozen=True)
class Grid:
    """Extents (x, y, z, t) of a periodic grid, each at least 1."""

    extents: Extents

    def __post_init__(self) -> None:
        object.__setattr__(self, "extents", four_extents("a grid", self.extents))

    def __str__(self) -> str:
        return "x".join(str(extent) for extent in self.extents)

    @property
    def sites(self) -> int:
        return int(np.prod(self.extents))

    @property
    def even_odd(self) -> bool:
        """True if every neighbour of an even site is odd: every extent is even."""
        return all(extent % 2 == 0 for extent in self.extents)

    @cached_property
    def numbers(self) -> NDArray[np.int32]:
        """Number of every site, int32 ``[t, z, y, x]``."""
        shape = self.extents[::-1]
        numbers = np.arange(self.sites, dtype=np.int32).reshape(shape)
        if self.even_odd:
            t, z, y, x = np.indices(shape, np.int32, sparse=True)
            numbers = numbers // 2 + (t + z + y + x) % 2 * np.int32(self.sites // 2)
        return numbers

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """Coordinates (x, y, z, t) of every site, ``[site, 4]``."""
        coordinates = np.empty((self.sites, 4), np.int64)
        coordinates[self.numbers.reshape(-1)] = np.indices(self.extents[::-1]).reshape(4, -1)[::-1].T
        return coordinates

    @cached_property
    def neighbours(self) -> NDArray[np.int32]:
        """The neighbour of every site in every direction, int32 ``[site, 8]``."""
        table = np.empty((self.sites, HOPS), np.int32)
        for d in range(HOPS):
            beside = np.roll(self.numbers, 2 * (d % 2) - 1, axis=3 - d // 2)
            table[self.numbers.reshape(-1), d] = beside.reshape(-1)
        return table


@dataclass(frozen=True)
class Aggregates:
    """The sites of `fine` in blocks of `extents` (x, y, z, t) sites, which are the sites of `coarse`.

    Raises InputError where an extent does not divide that of the grid.
    """

    fine: Grid
    extents: Extents

    def __post_init__(self) -> None:
        object.__setattr__(self, "extents", four_extents("an aggregate", self.extents))
        for name, whole, part in zip(DIRECTIONS, self.fine.extents, self.extents, strict=True):
            if whole % part:
                raise InputError(
                    f"aggregates of {part} sites do not divide the {whole} sites of the {self.fine} grid in "
                    f"{name}: choose a divisor of {whole}"
                )

    @property
    def volume(self) -> int:
        """Sites of one aggregate."""
        return int(np.prod(self.extents))

    @cached_property
    def coarse(self) -> Grid:
        return Grid(tuple(np.array(self.fine.extents) // self.extents))  # type: ignore[arg-type]

    @property
    def halved(self) -> bool:
        """True if each aggregate has as many even as odd sites, on a grid that has parities."""
        return self.fine.even_odd and self.volume % 2 == 0

    @cached_property
    def sites(self) -> NDArray[np.int32]:
        """Fine sites of every aggregate in ascending order, int32 ``[aggregate, site]``.

        Where the fine grid has parities the even sites are the first.
        """
        x, y, z, t = self.extents
        X, Y, Z, T = self.coarse.extents
        blocks = self.fine.numbers.reshape(T, t, Z, z, Y, y, X, x).transpose(0, 2, 4, 6, 1, 3, 5, 7)
        rows = np.empty((self.coarse.sites, self.volume), np.int32)
        rows[self.coarse.numbers.reshape(-1)] = blocks.reshape(-1, self.volume)
        return np.sort(rows, axis=1)

    @cached_property
    def faces(self) -> tuple[NDArray[np.int32], ...]:
        """Places in the rows of `sites` whose neighbour in +mu is beyond the aggregate, for each mu.

        ``[aggregate, site of the face]``; over a boundary of the grid it is beyond it also where that
        leads to the same aggregate.
        """
        within = self.fine.coordinates[self.sites] % self.extents
        last = np.moveaxis(within == np.array(self.extents) - 1, -1, 0)
        return tuple(np.nonzero(face)[1].astype(np.int32).reshape(len(face), -1) for face in last)

    @cached_property
    def face_sites(self) -> tuple[NDArray[np.int32], ...]:
        """The sites at those places."""
        return tuple(np.take_along_axis(self.sites, places, axis=1) for places in self.faces)


@lru_cache(maxsize=4)
def aggregates(fine: Grid, extents: Extents) -> Aggregates:
    """`Aggregates` whose tables serve every setup on the same lattice. Raises InputError as they do."""
    return Aggregates(fine, extents)


def on_grid(grid: Grid, like: Array, shape: tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """An array ``[site, *shape]``, not filled, of the library and, unless given, the dtype of another."""
    return empty_rows(like, (grid.sites, *shape), dtype or like.dtype, _runs(grid))


def zeros_on_grid(grid: Grid, like: Array, shape: tuple[int, ...]) -> Array:
    """An array ``[site, *shape]`` of zeros: see `on_grid`."""
    return zero_rows(like, (grid.sites, *shape), like.dtype, _runs(grid))


def _runs(grid: Grid) -> int:
    """Runs of sites that are cut in t: those of each parity where the grid has parities."""
    return 0 if grid.sites < SHARED_SITES else 2 if grid.even_odd else 1


def random_fields(shape: tuple[int, ...], dtype: DTypeLike, like: Array, seed: int, draw: int = 0) -> Array:
    """Random fields ``[site, component, count]`` of `dtype` where `like` lives, the same on every backend."""
    fields = field_like(like, shape, dtype)
    random_numbers.fill_random(fields, seed, draw)
    return fields


def random_on_grid(grid: Grid, components: int, count: int, like: Array, seed: int, draw: int) -> Array:
    """Random fields ``[site, component, count]`` on a grid, complex64, where `like` lives."""
    fields = on_grid(grid, like, (components, count), np.complex64)
    random_numbers.fill_random(fields, seed, draw)
    return fields


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
