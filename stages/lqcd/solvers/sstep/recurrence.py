"""Conjugate gradients, s steps at a time: a basis by the operator, one Gram matrix, coordinates, one update.

A block of steps is

    1  Y = [rho_0(A) p, ..., rho_s(A) p, rho_0(A) r, ..., rho_{s-1}(A) r]      2 s - 1 products with A
    2  G = Re Y^H Y                                                           one pass, one reduction
    3  s steps of conjugate gradients on coordinates x', r', p' in Y          on the host, no field is touched
    4  y += Y x',  r = Y r',  p = Y p'                                        one pass

(A. T. Chronopoulos and C. W. Gear, J. Comput. Appl. Math. 25 (1989) 153, with two-term recurrences.) G in
twice the precision of the fields keeps the rate of convergence, and replaced residuals the accuracy
(I. Yamazaki, E. Carson and B. Kelley, IPDPS 2022): the solve around it adds y to x group by group
(`stages.lqcd.solvers.reliable_updates`), in the middle of a block where `stages.lqcd.solvers.sstep.deviation`
asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, affine
from stages.lqcd.kernels import block_blas, lane_blas, powers
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import copied, field_like, zeros_like
from stages.lqcd.solvers.recurrence import BreakdownError, Vector, column_norms
from stages.lqcd.solvers.solution import SolveStatus
from stages.lqcd.solvers.sstep.deviation import Deviation
from stages.lqcd.solvers.sstep.polynomials import Polynomials

CONDITION = 1e-2
"""A basis is used as far as its condition number times the rounding of its vectors stays below this."""


@dataclass
class Log:
    """Notes of all blocks of a solve."""

    lengths: list[int] = field(default_factory=list)
    """Steps that the Gram matrix of each block allowed."""
    deviations: int = 0
    """Residuals replaced because the bound of their deviation asked for it."""


@dataclass(frozen=True)
class Ingredients:
    """The parts of the method, of which a study takes some away.

    precision: of the Gram matrix (`stages.lqcd.kernels.powers`). norm: |A|. replace: by the bound of the
    deviation. guard: fewer steps where the basis is ill-conditioned.
    """

    polynomials: Polynomials
    steps: int
    precision: str
    norm: float
    replace: bool
    guard: bool


class Last(NamedTuple):
    """The last direction p ``[..., width]``, A p, and p^H A p ``[width]``: the next is conjugate to it."""

    p: Array
    ap: Array
    curvature: Array


class SStepRecurrence:
    """p, r and their powers ``[2 s + 1, ..., width]`` in one basis, and y."""

    lag = 0

    def __init__(
        self,
        A: LinearOperator,
        residual: Array,
        target: Vector,
        directions: Last | None,
        parts: Ingredients,
        log: Log,
    ) -> None:
        self.A, self.parts, self.log = A, parts, log
        self.steps, self.step = parts.steps, 0
        self.path: powers.Path | None = None
        self.basis = field_like(residual, (2 * parts.steps + 1, *residual.shape), A.dtype)
        self.y = zeros_like(self.basis[0])
        self.r[...] = residual
        self.last = directions
        self._begin(target)

    @property
    def p(self) -> Array:
        return self.basis[0]

    @property
    def r(self) -> Array:
        return self.basis[self.steps + 1]

    def replace(self, residual: Array, target: Vector) -> None:
        self.y[...] = 0
        self.r[...] = residual
        self._begin(target)

    def directions(self, columns: NDArray[np.intp]) -> Last | None:
        return self.last and Last(*(lane_blas.lane_take(each, columns) for each in self.last))

    @property
    def full(self) -> bool:
        """True if the residual should be replaced before the next step."""
        return bool(self.path is not None and self.wanted[self.step].any())

    @property
    def correction(self) -> Array:
        if self.path is not None:
            self.log.deviations += self.full
            self.last = self._last(self.path)
            self._fold(self.path)
        return self.y

    def start(self) -> int:
        products = 0
        if self.path is not None and self.step == len(self.path.norms2) - 1:
            self._fold(self.path)
        if self.path is None:
            self.path = self._block()
            products = (2 * self.steps - 1) * self.y.shape[-1]
        self.step += 1
        return products

    def estimate(self) -> Vector:
        assert self.path is not None
        norms2, before = self.path.norms2[self.step], self.path.norms2[self.step - 1]
        active = before > self.targets2
        if (self.path.curvatures[self.step] <= 0)[active].any():
            raise BreakdownError(SolveStatus.INDEFINITE)
        if not np.isfinite(norms2).all():
            raise BreakdownError(SolveStatus.NOT_FINITE)
        return np.sqrt(np.maximum(norms2, 0))

    def _begin(self, target: Vector) -> None:
        """From y = 0 with a residual that the last direction, if any, does not know: p = r + beta p_last."""
        self.targets2, self.restarted = target**2, self.last is not None
        self.p[...] = self.r
        if self.last is not None:
            beta = -block_blas.dots(self.last.ap, self.r).real
            beta = quotient(beta, self.last.curvature, self.last.curvature > 0)
            lane_blas.lane_add(self.p, self.last.p, beta)
        self.path, self.step = None, 0
        norms = column_norms(self.r)
        eps = float(np.finfo(self.basis.dtype).eps) / 2
        # x is in units of the residual, and no larger than |b| / |A| times its condition
        self.deviation = Deviation(eps, self.parts.norm, norms / self.parts.norm, norms)

    def _block(self) -> powers.Path:
        """Steps 1 to 3."""
        steps = self.steps
        self._powers(self.basis[: steps + 1])
        self._powers(self.basis[steps + 1 : 2 * steps + 1])
        basis = self.basis[: 2 * steps + 1]
        gram = powers.gram(basis, self.parts.precision)
        length = self._length(gram.high) if self.parts.guard else steps
        self.log.lengths.append(length)
        change = np.zeros((len(basis), len(basis)))
        change[: steps + 1, : steps + 1] = self.parts.polynomials.change(steps)
        change[steps + 1 :, steps + 1 :] = self.parts.polynomials.change(steps - 1)
        self.change = change
        path = powers.conjugate_gradients(gram, change, length, steps + 1, self.targets2, self.restarted)
        self.restarted = False
        self.wanted = np.zeros((length + 1, 1), bool)
        if self.parts.replace:
            norms = np.sqrt(np.maximum(path.norms2, 0))
            magnitudes = powers.magnitudes(basis)
            self.wanted = self.deviation.block(magnitudes, change, path.x, path.r, norms)
            self.wanted &= path.norms2 > self.targets2
        return path

    def _powers(self, vectors: Array) -> None:
        """rho_i(A) of the first vector, in place of the others."""
        of = self.parts.polynomials
        for i in range(len(vectors) - 1):
            theta, sigma, gamma = (float(each[i]) for each in (of.theta, of.sigma, of.gamma))
            affine(self.A, -theta / gamma, 1 / gamma, vectors[i], vectors[i + 1])
            if sigma:
                block_blas.affine(vectors[i + 1], 1.0, vectors[i - 1], -sigma / gamma)

    def _length(self, gram: NDArray[np.float64]) -> int:
        """Steps whose basis is conditioned well enough, in all right-hand sides."""
        eps = float(np.finfo(self.basis.dtype).eps)
        limit = CONDITION / (eps if self.parts.precision != powers.WORKING else np.sqrt(eps))
        for steps in range(self.steps, 1, -1):
            if self._condition(gram[:, : steps + 1, : steps + 1]) <= limit:
                return steps
        return 1

    @staticmethod
    def _condition(gram: NDArray[np.float64]) -> float:
        """The largest condition number of vectors scaled to length one; of those that do not vanish."""
        lengths = np.sqrt(np.maximum(np.diagonal(gram, axis1=1, axis2=2), 0))
        there = (lengths > 0).all(axis=1)
        if not there.any():
            return 1.0
        lengths = lengths[there]
        values = np.linalg.eigvalsh(gram[there] / (lengths[:, :, None] * lengths[:, None, :]))
        if not (values[:, 0] > 0).all():
            return np.inf
        return float(np.sqrt(values[:, -1] / values[:, 0]).max())

    def _fold(self, path: powers.Path) -> None:
        """Step 4, after as many steps as were taken; shorter blocks follow one that was cut."""
        length, basis = len(path.norms2) - 1, self.basis[: 2 * self.steps + 1]
        lane_blas.lane_update(self.y, basis, self._coefficients(path.x))
        p, r = (copied(self.y) for _ in range(2))
        none = to_device_like(np.zeros(self.y.shape[-1]), self.y)
        lane_blas.lane_update(p, basis, self._coefficients(path.p), none)
        lane_blas.lane_update(r, basis, self._coefficients(path.r), none)
        if self.parts.replace:
            self.deviation.advance(self.step)
        self.steps, self.path, self.step = length, None, 0
        self.p[...], self.r[...] = p, r

    def _last(self, path: powers.Path) -> Last:
        """The direction of the last step taken."""
        basis, before = self.basis[: 2 * self.steps + 1], path.p[self.step - 1]
        none = to_device_like(np.zeros(self.y.shape[-1]), self.y)
        p, ap = (copied(self.y) for _ in range(2))
        for out, coordinates in ((p, before), (ap, before @ self.change.T)):
            numbers = to_device_like(np.ascontiguousarray(coordinates.T, complex), self.y)
            lane_blas.lane_update(out, basis, numbers, none)
        return Last(p, ap, to_device_like(np.ascontiguousarray(path.curvatures[self.step]), self.y))

    def _coefficients(self, coordinates: NDArray[np.float64]) -> Array:
        """Those of the last step taken, complex ``[K, N]``."""
        return to_device_like(np.ascontiguousarray(coordinates[self.step].T, complex), self.y)


def ingredients_of(parts: Ingredients, log: Log) -> Any:
    """`KrylovSolver.begin` with these."""

    def begin(A: LinearOperator, residual: Array, target: Vector, directions: Any = None) -> SStepRecurrence:
        return SStepRecurrence(A, residual, target, directions, parts, log)

    return begin
