"""Operators of grids, and Galerkin operators of coarse ones, A_c = P^H A P, by their coarse links.

    A_c x(s) = X(s) x(s) + sum_d Y_d(s) x(s + d),      matrices of 2 k components, chirality slowest

A hop of A in one direction that stays in an aggregate contributes to X, one that leaves it to Y_d. Only
forward hops are computed: A is gamma5-Hermitian on every level, with gamma5 = +-1 by chirality, so that

    Y_{-mu}(s) = gamma5 Y_{+mu}(s - mu)^H gamma5

and the same holds for the parts of X (arXiv:1612.07873, section III).

Where a grid has parities a cycle iterates the symmetric Schur complement of the even sites, which converges
faster than A and costs less: with A = X + Y and Z = X^-1 Y

    S = 1 - Z_eo Z_oe,   S x_e = y_e - Z_eo y_o,   x_o = y_o - Z_oe x_e,   y = X^-1 b
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import ModuleType
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.dirac.operator import LinearOperator, MadeOf
from stages.lqcd.kernels import coarse_dslash
from stages.lqcd.kernels.coarse_dslash import PackedCoarseLinks
from stages.lqcd.kernels.dispatch import Array, array_module, to_device_like
from stages.lqcd.kernels.fields import assign, contiguous, converted, field_like, of_rows, on_rows
from stages.lqcd.multigrid.aggregates import HOPS, Grid, Prolongation, on_grid, require_finite
from stages.lqcd.solvers.even_odd import EvenOddSystem
from stages.lqcd.solvers.solution import column_blocks


class LevelOperator(EvenOddSystem, Protocol):
    """The operator A of a level; that of the finest one is all that multigrid knows of a kind of quarks.

    Fields are ``[site, 2 n, N]`` on its grid, chirality + in the first n components, on which gamma5 is +1.
    Staggered quarks have epsilon(x) instead: there an even and an odd site together are a site of the grid.
    `operator` is S, what cycles iterate in place of A: the Schur complement of the even sites, or A itself on
    a grid without parities. `prepare` and `reconstruct` lead from A x = b to S and back.
    """

    @property
    def grid(self) -> Grid:
        """The grid that its fields live on."""

    @property
    def components(self) -> int:
        """2 n."""

    @property
    def dtype(self) -> np.dtype:
        """complex64 or complex128: that of the fields."""

    @property
    def links(self) -> Array:
        """An array that lives where the fields do."""

    @property
    def even(self) -> bool:
        """True if fields of S are those of the even sites alone."""

    def defect(self, residual: Array) -> Array:
        """The residual of A on the sites of S, from that of S; elsewhere it is zero."""

    def extend(self, x: Array) -> None:
        """Write the odd sites of x so that A x vanishes there, if S has none."""

    def galerkin(self, P: Prolongation) -> CoarseOperator:
        """P^H A P: by `galerkin` where A is gamma5-Hermitian and has hops to nearest neighbours only."""

    def apply(self, x: Array) -> Array:
        """A x."""

    @property
    def twisted(self) -> bool:
        """True for a finest operator with a twisted mass."""

    def twist_scaled(self, factor: float) -> LevelOperator:
        """This operator with its twisted mass times a factor."""

    def astype(self, dtype: DTypeLike) -> LevelOperator:
        """This operator in another precision."""


class Hops(Protocol):
    """Parts of an operator that has hops to nearest neighbours only, for its Galerkin product."""

    @property
    def most_columns(self) -> int:
        """Vectors of a transfer whose columns, of both chiralities, are multiplied at once as fields."""

    @property
    def hop_factor(self) -> float:
        """The factor that `forward_hop` leaves out."""

    def local(self, x: Array) -> Array:
        """The part of A that does not leave a site times x."""

    def forward_hop(self, mu: int, x: Array) -> Array:
        """The part of A that takes x(s + mu) to s, over `hop_factor`."""


@dataclass(frozen=True, eq=False)
class CoarseOperator:
    """A_c: `diagonal` X ``[site, n, n]``, `links` Y ``[site, 8, n, n]``; fields ``[site, n, N]``, n = 2 k.

    On a grid with an odd extent, where cycles iterate A_c itself; see `coarse_operator`.
    """

    grid: Grid
    diagonal: Array
    links: Array

    hermitian = False
    positive_definite = False
    hop_factor = 1.0
    most_columns = 32
    even = False
    twisted = False

    @property
    def components(self) -> int:
        return self.links.shape[-1]

    @property
    def xp(self) -> ModuleType:
        return array_module(self.links)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.links.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.grid.sites, self.components)

    @property
    def operator(self) -> LinearOperator:
        return self

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = on_grid(self.grid, x, x.shape[1:]) if out is None else out
        return coarse_dslash.coarse_dslash(self._packed, x, out)

    def twist_scaled(self, factor: float) -> CoarseOperator:
        """A_c with its twisted mass times a factor: P^H gamma5 P = gamma5, so that mu is in X alone.

        Where the finest operator has that factor, too, it is P^H A P for the same vectors.
        """
        return replace(self, diagonal=of_rows(partial(_twist_scaled, factor), self.diagonal))

    def astype(self, dtype: DTypeLike) -> CoarseOperator:
        if self.dtype == dtype:
            return self
        diagonal, links = (converted(matrices, dtype) for matrices in (self.diagonal, self.links))
        return replace(self, diagonal=diagonal, links=links)

    def local(self, x: Array) -> Array:
        return coarse_dslash.coarse_dslash(self._packed_local, x, on_grid(self.grid, x, x.shape[1:]))

    def forward_hop(self, mu: int, x: Array) -> Array:
        d = 2 * mu
        links = contiguous(self.links[:, d : d + 1])
        packed = coarse_dslash.pack(links, np.ascontiguousarray(self.grid.neighbours[:, d : d + 1]))
        return coarse_dslash.coarse_dslash(packed, x, on_grid(self.grid, x, x.shape[1:]))

    def galerkin(self, P: Prolongation) -> CoarseOperator:
        return galerkin(P, partial(put_products, self))

    def prepare(self, b: Array) -> tuple[Array, Array]:
        return b, b

    def reconstruct(self, x: Array, source: Array) -> Array:
        return x

    def defect(self, residual: Array) -> Array:
        return residual

    def extend(self, x: Array) -> None:
        """Nothing: S has all sites."""

    def dense(self) -> Array:
        """The matrix of S, complex128 ``[size, size]``."""
        size = self.grid.sites * self.components
        matrix = dense_hops(self.links.astype(np.complex128), self.grid.neighbours, self.grid.sites)
        sites = np.arange(self.grid.sites)
        matrix[sites, :, sites] += self.diagonal
        return matrix.reshape(size, size)

    @cached_property
    def _packed(self) -> PackedCoarseLinks:
        links = on_grid(self.grid, self.links, (1 + HOPS, *self.links.shape[2:]))
        assign(links[:, 0], self.diagonal)
        assign(links[:, 1:], self.links)
        return coarse_dslash.pack(links, np.concatenate([_itself(links), self.grid.neighbours], axis=1))

    @cached_property
    def _packed_local(self) -> PackedCoarseLinks:
        return coarse_dslash.pack(self.diagonal[:, None], _itself(self.diagonal))


class EvenOddOperator(CoarseOperator):
    """A_c on a grid with parities, where cycles iterate S. Raises InputError where X is singular on a site.

    Matrices of Z and of X^-1 have 16 bits on a GPU.
    """

    even = True

    @property
    def operator(self) -> LinearOperator:
        return CoarseSchur(self)

    def prepare(self, b: Array) -> tuple[Array, Array]:
        y = coarse_dslash.coarse_dslash(self._scaled[2], b, field_like(b))
        half = len(y) // 2
        rhs = self.hop(0, y[half:], field_like(y[half:]), y[:half], 1.0, -1.0)
        return rhs, y

    def reconstruct(self, x: Array, source: Array) -> Array:
        half = len(x)
        assign(source[:half], x)
        self.hop(1, x, source[half:], source[half:], 1.0, -1.0)
        return source

    def defect(self, residual: Array) -> Array:
        return coarse_dslash.coarse_dslash(self._even_diagonal, residual, field_like(residual))

    def extend(self, x: Array) -> None:
        half = len(x) // 2
        self.hop(1, x[:half], x[half:], b=-1.0)

    def hop(
        self, parity: int, x: Array, out: Array, diagonal: Array | None = None, a: float = 0.0, b: float = 1.0
    ) -> Array:
        """``out = a diagonal + b Z x`` on the sites of `parity`; returns `out`."""
        return coarse_dslash.coarse_dslash(self._scaled[parity], x, out, diagonal=diagonal, a=a, b=b)

    def dense(self) -> Array:
        """The matrix of S, complex128 ``[size, size]``."""
        even, odd = self._scaled_links(self.inverse)
        half, size, neighbours = len(even), even.shape[0] * even.shape[-1], self._neighbours
        to_odd = dense_hops(odd, neighbours[1], half).reshape(size, size)
        from_odd = dense_hops(even, neighbours[0], half).reshape(size, size)
        return to_device_like(np.eye(size), to_odd) - from_odd @ to_odd

    @property
    def inverse(self) -> Array:
        """X^-1 of every site, computed in double."""
        inverse = of_rows(lambda X: coarse_dslash.inverse(X.astype(np.complex128)), self.diagonal)
        require_finite(
            inverse, "a local matrix of a coarse operator is singular: change the mass or the vectors"
        )
        return inverse

    @property
    def _neighbours(self) -> NDArray[np.int32]:
        """Of the even and of the odd sites, which lie on the other parity: int32 ``[parity, site, 8]``."""
        half = self.grid.sites // 2
        return (self.grid.neighbours % half).astype(np.int32).reshape(2, half, HOPS)

    def _scaled_links(self, inverse: Array) -> tuple[Array, Array]:
        """Z into the even and into the odd sites, ``[site, 8, n, n]``, from X^-1, of its precision."""
        half = self.grid.sites // 2
        links = of_rows(lambda inverse, links: inverse[:, None] @ links, inverse, self.links)
        return links[:half], links[half:]

    @cached_property
    def _scaled(self) -> tuple[PackedCoarseLinks, PackedCoarseLinks, PackedCoarseLinks]:
        """Z into the even and into the odd sites, and X^-1."""
        inverse = converted(self.inverse, self.dtype)
        even, odd = (
            coarse_dslash.pack_half(links, neighbours)
            for links, neighbours in zip(self._scaled_links(inverse), self._neighbours, strict=True)
        )
        return even, odd, coarse_dslash.pack_half(inverse[:, None], _itself(inverse))

    @cached_property
    def _even_diagonal(self) -> PackedCoarseLinks:
        matrices = self.diagonal[: self.grid.sites // 2]
        return coarse_dslash.pack_half(matrices[:, None], _itself(matrices))


@dataclass(frozen=True, eq=False)
class CoarseSchur(MadeOf):
    """S of a coarse operator on the even sites, ``[site, n, N]``."""

    A: EvenOddOperator

    made_of = "A"
    hermitian = False
    positive_definite = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.A.grid.sites // 2, self.A.components)

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = field_like(x) if out is None else out
        between = self.A.hop(1, x, field_like(x))
        return self.A.hop(0, between, out, x, 1.0, -1.0)

    def astype(self, dtype: DTypeLike) -> LinearOperator:
        return self.A.astype(dtype).operator


def coarse_operator(grid: Grid, diagonal: Array, links: Array) -> CoarseOperator:
    """A_c of these matrices: even-odd preconditioned where every extent of the grid is even."""
    return (EvenOddOperator if grid.even_odd else CoarseOperator)(grid, diagonal, links)


def galerkin(
    P: Prolongation, put: Callable[[Prolongation, Array, list[Array], Array], None]
) -> CoarseOperator:
    """P^H A P for A that is gamma5-Hermitian; put: `put_products` of A, or kernels that need no fields."""
    coarse, k = P.aggregates.coarse, P.vector_count
    diagonal, *inside = (on_grid(coarse, P.vectors, (2 * k, 2 * k)) for _ in range(5))
    links = on_grid(coarse, P.vectors, (HOPS, 2 * k, 2 * k))
    put(P, diagonal, inside, links)
    behind = to_device_like(np.ascontiguousarray(coarse.neighbours[:, 1::2]), links)
    coarse_dslash.add_backward(diagonal, inside, links, behind)
    return coarse_operator(coarse, diagonal, links)


def add_twist(diagonal: Array, mu: float) -> None:
    """``X += i mu gamma5`` of all sites, ``[site, n, n]``."""
    signs = np.repeat([1j * mu, -1j * mu], diagonal.shape[-1] // 2)
    if mu:
        on_rows(partial(_add_to_diagonal, signs.astype(diagonal.dtype)), diagonal)


def _twist_scaled(factor: float, X: Array) -> Array:
    """H + factor i mu gamma5 for X = H + i mu gamma5, H = gamma5 H^H gamma5."""
    signs = to_device_like(np.repeat([1, -1], X.shape[-1] // 2), X)
    twist = (X - signs[:, None] * X.conj().swapaxes(-1, -2) * signs) / 2
    return (X + X.dtype.type(factor - 1) * twist).astype(X.dtype)


def _add_to_diagonal(numbers: NDArray, matrices: Array) -> None:
    places = np.arange(len(numbers))
    matrices[:, places, places] += to_device_like(numbers, matrices)


def put_products(A: Hops, P: Prolongation, diagonal: Array, inside: list[Array], links: Array) -> None:
    """Write products of A with the columns of P, as fields, those of some vectors at once.

    diagonal: what the local part of A gives, ``[aggregate, 2 k, 2 k]``. inside: the forward hops of each
    direction that stay in an aggregate, likewise. The others go to directions 2 mu of links ``[aggregate, 8,
    2 k, 2 k]``.
    """
    k, everywhere = P.vector_count, P.on_all_sites()
    factor = diagonal.real.dtype.type(A.hop_factor)
    for some in column_blocks(k, A.most_columns):
        columns = P.columns(slice(some.start, some.stop))
        where = np.array([*some, *(k + number for number in some)])
        on_rows(partial(_put_columns, where), diagonal, everywhere.restrict(A.local(columns)))
        for mu in range(4):
            moved = A.forward_hop(mu, columns)
            beyond, all_in = P.on_face(mu).restrict(moved), everywhere.restrict(moved)
            put_hop = partial(_put_hop, where, 2 * mu, factor)
            on_rows(put_hop, inside[mu], links, all_in, beyond)


def dense_hops(links: Array, neighbours: NDArray, inputs: int) -> Array:
    """Links ``[site, d, n, n]`` to sites of `inputs` as a matrix ``[site, n, inputs, n]``."""
    sites, directions, n, _ = links.shape
    leads = np.zeros((sites, directions, inputs), links.dtype)
    np.put_along_axis(leads, neighbours[..., None], 1, axis=2)
    # one product a site, of all its links at once: several may lead to one site
    columns = links.reshape(sites, directions, n * n).swapaxes(1, 2) @ to_device_like(leads, links)
    return columns.reshape(sites, n, n, inputs).swapaxes(2, 3)


def _itself(matrices: Array) -> NDArray[np.int32]:
    """The only neighbour of each site, for a local product: int32 ``[site, 1]``."""
    return np.arange(len(matrices), dtype=np.int32)[:, None]


def _put_columns(where: NDArray, matrices: Array, columns: Array) -> None:
    matrices[..., where] = columns


def _put_hop(
    where: NDArray, d: int, factor: np.floating, inside: Array, links: Array, moved: Array, beyond: Array
) -> None:
    """The columns of a forward hop: those that leave an aggregate are links, the others stay inside."""
    leaving = beyond * factor
    inside[..., where] = moved * factor - leaving
    links[:, d][..., where] = leaving
