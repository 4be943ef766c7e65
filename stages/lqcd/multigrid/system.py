"""The linear systems that the levels iterate: even-odd preconditioned where the grid has parities.

With A = X + Y, X its part that stays on a site and Z = X^-1 Y, the symmetric Schur complement

    S = 1 - Z_eo Z_oe,   S x_e = y_e - Z_eo y_o,   x_o = y_o - Z_oe x_e,   y = X^-1 b

of the even sites converges faster than A and costs less. A residual r of S is the residual X_ee r of
A on the even sites; on the odd ones that of A vanishes (arXiv:1612.07873, section III).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.kernels import coarse_dslash
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import assign, converted, field_like, of_rows
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.multigrid.coarse_operator import CoarseOperator
from stages.lqcd.multigrid.fine_operator import FineOperator
from stages.lqcd.multigrid.finite import require_finite
from stages.lqcd.multigrid.grid import HOPS
from stages.lqcd.solvers.even_odd import EvenOddSystem


class LevelSystem(EvenOddSystem, Protocol):
    """The system that a level iterates instead of A x = b, whose fields are ``[site, 2 n, N]``."""

    @property
    def even(self) -> bool:
        """True if fields of the system are those of the even sites alone."""

    def defect(self, residual: Array) -> Array:
        """The residual of A on the sites of the system, from the residual of this; elsewhere it is zero."""

    def extend(self, x: Array) -> None:
        """Write the odd sites of x ``[site, 2 n, N]`` so that A x vanishes there, if the system has none."""


class CoarseSystem(LevelSystem, Protocol):
    """The system of a coarse grid."""

    def dense(self) -> Array:
        """The matrix of its operator, complex128 ``[size, size]``."""


@dataclass(frozen=True)
class FineSystem:
    """The symmetric Schur complement of M on the even sites."""

    fine: FineOperator

    even = True

    @cached_property
    def operator(self) -> WilsonSchur:
        return WilsonSchur(self.fine.M, "symmetric", EVEN)

    def defect(self, residual: Array) -> Array:
        return self.fine.local_on(EVEN, residual, field_like(residual))

    def extend(self, x: Array) -> None:
        self.operator.extend(x.reshape(2, -1, COMPONENTS, x.shape[-1]))

    def prepare(self, b: Array) -> tuple[Array, Array]:
        fields = b.reshape(2, -1, COMPONENTS, b.shape[-1])
        return self.operator.prepare(fields)

    def reconstruct(self, x: Array, source: Array) -> Array:
        return self.operator.reconstruct(x, source).reshape(-1, COMPONENTS, x.shape[-1])


@dataclass(frozen=True, eq=False)
class FullSystem:
    """A x = b itself, on a coarse grid with an odd extent."""

    operator: CoarseOperator

    even = False

    def defect(self, residual: Array) -> Array:
        return residual

    def extend(self, x: Array) -> None:
        """Nothing: the system has all sites."""

    def prepare(self, b: Array) -> tuple[Array, None]:
        return b, None

    def reconstruct(self, x: Array, source: None) -> Array:
        return x

    def dense(self) -> Array:
        A = self.operator
        size = A.grid.sites * A.components
        matrix = dense_hops(A.links.astype(np.complex128), A.grid.neighbours, A.grid.sites)
        sites = np.arange(A.grid.sites)
        matrix[sites, :, sites] += A.diagonal
        return matrix.reshape(size, size)


def dense_hops(links: Array, neighbours: NDArray, inputs: int) -> Array:
    """Links ``[site, d, n, n]`` to sites of `inputs` as a matrix ``[site, n, inputs, n]``."""
    sites, directions, n, _ = links.shape
    leads = np.zeros((sites, directions, inputs), links.dtype)
    np.put_along_axis(leads, neighbours[..., None], 1, axis=2)
    # one product a site, of all its links at once: several may lead to one site
    columns = links.reshape(sites, directions, n * n).swapaxes(1, 2) @ to_device_like(leads, links)
    return columns.reshape(sites, n, n, inputs).swapaxes(2, 3)


@dataclass(frozen=True, eq=False)
class CoarseSchur:
    """S of a coarse operator on the even sites, ``[site, n, N]``.

    Raises InputError where X is singular on a site.
    """

    A: CoarseOperator

    hermitian = False
    positive_definite = False
    even = True

    def __post_init__(self) -> None:
        if not self.A.grid.even_odd:
            raise InputError(f"even-odd preconditioning needs even extents, got the grid {self.A.grid}")

    @property
    def operator(self) -> CoarseSchur:
        return self

    @property
    def xp(self) -> ModuleType:
        return self.A.xp

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.A.grid.sites // 2, self.A.components)

    @property
    def dtype(self) -> np.dtype:
        return self.A.dtype

    def astype(self, dtype: Any) -> CoarseSchur:
        return self if self.dtype == dtype else CoarseSchur(self.A.astype(dtype))

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = field_like(x) if out is None else out
        between = self._hop(1, x, field_like(x))
        return self._hop(0, between, out, diagonal=x, a=1.0, b=-1.0)

    def defect(self, residual: Array) -> Array:
        return coarse_dslash.coarse_dslash(self._even_diagonal, residual, field_like(residual))

    def extend(self, x: Array) -> None:
        half = len(x) // 2
        self._hop(1, x[:half], x[half:], b=-1.0)

    def prepare(self, b: Array) -> tuple[Array, Array]:
        y = coarse_dslash.coarse_dslash(self._packed[2], b, field_like(b))
        half = len(y) // 2
        rhs = self._hop(0, y[half:], field_like(y[half:]), diagonal=y[:half], a=1.0, b=-1.0)
        return rhs, y

    def reconstruct(self, x: Array, y: Array) -> Array:
        half = len(x)
        assign(y[:half], x)
        self._hop(1, x, y[half:], diagonal=y[half:], a=1.0, b=-1.0)
        return y

    def _hop(self, parity: int, x: Array, out: Array, **terms: Any) -> Array:
        """Z x on the sites of `parity`."""
        return coarse_dslash.coarse_dslash(self._packed[parity], x, out, **terms)

    def dense(self) -> Array:
        size, (even, odd) = int(np.prod(self.shape)), self._scaled_links(self.inverse)
        half, neighbours = len(even), self.A.grid.neighbours % len(even)
        to_odd = dense_hops(odd, neighbours[half:], half).reshape(size, size)
        from_odd = dense_hops(even, neighbours[:half], half).reshape(size, size)
        return to_device_like(np.eye(size), to_odd) - from_odd @ to_odd

    @property
    def inverse(self) -> Array:
        """X^-1 of every site, computed in double."""
        inverse = of_rows(lambda X: coarse_dslash.inverse(X.astype(np.complex128)), self.A.diagonal)
        require_finite(
            inverse, "a local matrix of a coarse operator is singular: change the mass or the vectors"
        )
        return inverse

    def _scaled_links(self, inverse: Array) -> tuple[Array, Array]:
        """Z into the even and into the odd sites, ``[site, 8, n, n]``, from X^-1, of its precision."""
        half = self.A.grid.sites // 2
        links = of_rows(lambda inverse, links: inverse[:, None] @ links, inverse, self.A.links)
        return links[:half], links[half:]

    @cached_property
    def _packed(self) -> tuple[Any, Any, Any]:
        """Z into the even and into the odd sites, and X^-1."""
        half, inverse = self.A.grid.sites // 2, converted(self.inverse, self.dtype)
        # a neighbour of an even site is an odd one and the other way round
        table = (self.A.grid.neighbours % half).astype(np.int32).reshape(2, half, HOPS)
        even, odd = (
            coarse_dslash.pack_half(links, neighbours)
            for links, neighbours in zip(self._scaled_links(inverse), table, strict=True)
        )
        return even, odd, self._packed_local(inverse)

    @cached_property
    def _even_diagonal(self) -> Any:
        return self._packed_local(self.A.diagonal[: self.A.grid.sites // 2])

    def _packed_local(self, matrices: Array) -> Any:
        itself = np.arange(len(matrices), dtype=np.int32)[:, None]
        return coarse_dslash.pack_half(matrices[:, None], itself)


def coarse_system(A: CoarseOperator) -> CoarseSystem:
    """Even-odd preconditioned where every extent of the grid is even."""
    return CoarseSchur(A) if A.grid.even_odd else FullSystem(A)
