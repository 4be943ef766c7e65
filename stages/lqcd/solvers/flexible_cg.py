"""Flexible preconditioned conjugate gradients, for many right-hand sides at once.

Y. Notay, SIAM J. Sci. Comput. 22 (2000) 1444: a preconditioner that differs from step to step, as one that
iterates itself, costs conjugate gradients their rate unless directions are made conjugate explicitly,

    1  z = K r                                       r times a power of two near 1 / |r|
    2  p = z + beta p,  beta = -(A p)^H z / p^H A p  which is z^H (r - r_old) / z_old^H r_old (Polak, Ribiere)
    3  alpha = p^H r / p^H A p,  y += alpha p,  r -= alpha A p

Each right-hand side has its own coefficients. One that has reached its target changes no bit any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import Storage
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, converted, field_like, zeros_like
from stages.lqcd.solvers.gcr import Preconditioner
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.recurrence import BreakdownError, Directions, Recurrence
from stages.lqcd.solvers.solution import SolveStatus, Vector


class PositivePreconditioner(Preconditioner, Protocol):
    """About the inverse of a Hermitian positive definite A, nearly linear, Hermitian and positive."""

    @property
    def products(self) -> int:
        """Products with A that `apply` takes."""


@dataclass(frozen=True)
class FlexibleCG(KrylovSolver):
    """Flexible CG; its preconditioner is applied to residuals of norm about one, in its own dtype."""

    preconditioner: PositivePreconditioner | None = None

    narrows: ClassVar[bool] = True
    update_at: ClassVar[float] = 1e-4

    def begin(self, storage: Storage, residual: Array, target: Vector, directions: Directions) -> Recurrence:
        return _FlexibleRecurrence(self.preconditioner, storage, residual, target, directions)


class _Directions(NamedTuple):
    """p and A p ``[..., width]``, and p^H A p ``[width]``, of columns that go on."""

    p: Array
    ap: Array
    pap: Array


class _FlexibleRecurrence:
    """r and y ``[..., width]``, and p, A p and p^H A p of the last step; none before the first."""

    full = False
    lag = 0
    r2: Array
    before: Array
    target2: Array

    def __init__(
        self,
        preconditioner: PositivePreconditioner | None,
        storage: Storage,
        residual: Array,
        target: Vector,
        directions: _Directions | None,
    ) -> None:
        self.preconditioner, self.storage = preconditioner, storage
        self.r, self.last = storage.stored(residual), directions
        self.y = zeros_like(self.r)
        self._begin(target)

    def replace(self, residual: Array, target: Vector) -> None:
        self.r = self.storage.stored(residual)
        assign(self.y, 0)
        self._begin(target)

    def directions(self, columns: NDArray[np.intp]) -> _Directions | None:
        if self.last is None:
            return None
        return _Directions(*(lane_blas.lane_take(each, columns) for each in self.last))

    @property
    def correction(self) -> Array:
        return self.y

    def start(self) -> int:
        z = self._preconditioned()
        if self.last is not None:
            p, ap, pap = self.last
            beta = quotient(-block_blas.dots(ap, z), pap, pap > 0)
            lane_blas.lane_update(z, p[None], beta[None])
        ap = self.storage.operator.apply(z, field_like(z))
        self.last = _Directions(z, ap, block_blas.dots(z, ap).real)
        open_ = self.r2 > self.target2
        alpha = quotient(block_blas.dots(z, self.r), self.last.pap, open_ & (self.last.pap > 0))
        lane_blas.lane_update(self.y, z[None], alpha[None])
        lane_blas.lane_update(self.r, ap[None], -alpha[None])
        self.before, self.r2 = self.r2, block_blas.norms2(self.r)
        each = 1 if self.preconditioner is None else 1 + self.preconditioner.products
        return each * self.r.shape[-1]

    def estimate(self) -> Vector:
        assert self.last is not None
        r2, pap = as_numpy(self.r2), as_numpy(self.last.pap)
        open_ = as_numpy(self.before > self.target2)
        if not (np.isfinite(r2).all() and np.isfinite(pap[open_]).all()):
            raise BreakdownError(SolveStatus.NOT_FINITE)
        if (pap[open_] <= 0).any():
            raise BreakdownError(SolveStatus.INDEFINITE)
        return np.sqrt(r2)

    def _begin(self, target: Vector) -> None:
        self.r2 = self.before = block_blas.norms2(self.r)
        self.target2 = to_device_like(target**2, self.r)

    def _preconditioned(self) -> Array:
        """Step 1, a new field; powers of two change no digit, and small numbers do not underflow."""
        z, xp = field_like(self.r), self.storage.operator.xp
        unit = xp.exp2(-(xp.frexp(self.r2)[1] // 2)).astype(z.real.dtype)
        lane_blas.lane_scale(self.r, unit, z)
        if self.preconditioner is None:
            return z
        about = self.preconditioner.apply(converted(z, self.preconditioner.dtype))
        if about.dtype == z.dtype:
            return about
        assign(z, about)
        return z
