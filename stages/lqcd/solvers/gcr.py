"""Flexible GCR(k): generalised conjugate residuals for any operator, with any preconditioner.

S. C. Eisenstat, H. C. Elman, M. H. Schultz, SIAM J. Numer. Anal. 20 (1983) 345, with a preconditioner that
may change from step to step:

    1  z = K r,  w = A z                        r times a power of two near 1 / |r|
    2  w -= sum_j w_j (w_j^H w) / |w_j|^2       Gram and Schmidt on the w_j since the last restart
    3  alpha = w^H r / |w|^2,  r -= alpha w     the shortest residual in the space so far

Directions are not updated: p_k with A p_k = w_k is kept as its components in z_0 ... z_k, small matrices, and
y is put together once, at the end. All coefficients stay where the fields are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas, lane_blas, stream
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import converted, copied, field_like, zeros_like
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.solvers.gcr_directions import HalfDirections, WholeDirections
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.recurrence import BreakdownError, Recurrence
from stages.lqcd.solvers.solution import SolveStatus, Vector

Directions: TypeAlias = type[WholeDirections] | type[HalfDirections]

ROUNDING = 8
"""Times the rounding unit: what is left of a new w, relative to it, is noise below this."""


class Preconditioner(Protocol):
    """An approximate inverse K of A, linear or not."""

    @property
    def dtype(self) -> np.dtype:
        """complex64 or complex128: that of the fields that it takes."""

    def apply(self, x: Array) -> Array:
        """About A^-1 x ``[..., N]``, of the dtype of x, which it may not change."""


RESTART = 10
"""Directions that are kept unless another number is asked for."""

CYCLE_RESTART = 7
"""With a cycle of multigrid, whose residuals fall by `GCR.update_at` in as many iterations or fewer."""


@dataclass(frozen=True)
class GCR(KrylovSolver):
    """GCR(restart): for operators that are not Hermitian, with a preconditioner that need not be linear.

    restart: directions that are kept; then the true residual is taken again in the precision of b.
    preconditioner: applied to blocks of residuals of norm about one, in its own dtype.
    """

    restart: int = RESTART
    preconditioner: Preconditioner | None = None

    narrows: ClassVar[bool] = True
    update_at: ClassVar[float] = 1e-4
    forgets: ClassVar[bool] = True
    halves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.restart < 1:
            raise InputError(f"restart must be at least 1, got {self.restart}")

    def check_operator(self, A: LinearOperator) -> None:
        """Any operator will do."""

    def in_half(self, A: LinearOperator) -> LinearOperator:
        """A in single precision, in which it is applied. Raises InputError."""
        if A.shape[1:] == (COMPONENTS,):
            return A.astype(np.complex64)
        raise InputError(
            f"half precision of GCR is for spinors on one parity, not for {type(A).__name__}: "
            "iterate in 'single'"
        )

    def begin(self, A: LinearOperator, residual: Array, target: Vector, directions: Any = None) -> Recurrence:
        r = converted(residual, A.dtype)
        target2 = to_device_like(target**2, r)
        kept = HalfDirections if self.inner == "half" else WholeDirections
        space = GCRSpace(A, r, self.restart, self.preconditioner, target2, kept)
        return _GCRRecurrence(space, self.restart, target)


@dataclass(frozen=True)
class MultigridGCR(GCR):
    """GCR preconditioned by a cycle of multigrid."""

    restart: int = CYCLE_RESTART


def gcr_correction(
    A: LinearOperator,
    r: Array,
    steps: int,
    tolerance: float = 0.0,
    preconditioner: Preconditioner | None = None,
) -> Array:
    """Approximate y ``[*A.shape, N]`` of A y = r after so many steps of GCR.

    In the precision of A and r; r is kept.

    A right-hand side stops where |r - A y| <= tolerance |r|; the iteration stops where all have, if that is
    known without waiting: a device does all steps. For the cycles of a multigrid method.
    """
    target2 = tolerance**2 * block_blas.norms2(r)
    space = GCRSpace(A, copied(r), steps, preconditioner, target2)
    for _ in range(steps):
        space.step()
        if stream.surely(space.r2 <= target2):
            break
    return space.solution()


class GCRSpace:
    """The space of up to `size` directions, and the residual r ``[..., N]``, which it changes.

    p_k = sum_j combinations[k, j] z_j is such that A p_k = w_k, and y = sum_j coefficients[j] z_j; complex128
    ``[size, size, N]`` and ``[size, N]``. A right-hand side with |r|^2 <= target2 ``[N]`` changes no more.
    """

    def __init__(
        self,
        A: LinearOperator,
        r: Array,
        size: int,
        preconditioner: Preconditioner | None,
        target2: Array,
        directions: Directions = WholeDirections,
    ) -> None:
        n = r.shape[-1]
        self.A, self.preconditioner = A, preconditioner
        self.size, self.taken = size, 0
        self.kept = directions(r, size)
        self.noise = (ROUNDING * self.kept.rounding) ** 2
        self.inverse_norms2 = field_like(r, (size, n), np.float64)
        self.combinations = zeros_like(r, (size, size, n), np.complex128)
        self.coefficients = zeros_like(r, (size, n), np.complex128)
        self.begin(r, target2)

    def begin(self, r: Array, target2: Array) -> None:
        """Forget all directions and start again at y = 0 with this residual."""
        self.r, self.target2, self.taken = r, target2, 0
        self.r2 = lane_blas.lane_dots(r[None], r)[0].real
        self.coefficients[...] = 0

    def step(self) -> None:
        """Steps 1 to 3; there must be room for another direction."""
        k = self.taken
        z, w = self.kept.room(k, self.r)
        self._direct(k, z)
        self.A.apply(z, w)
        row = self.combinations[k]
        row[k] = 1
        products = self.kept.products(k, w)
        beta = -products[:k] * self.inverse_norms2[:k]
        if k:
            row[:k] = (beta[:, None] * self.combinations[:k, :k]).sum(axis=0)
        norms2, overlap = self.kept.orthogonal(k, w, beta, self.r)
        before = self.kept.before(products, beta, norms2)
        usable = (self.r2 > self.target2) & (norms2 > self.noise * before)
        self.inverse_norms2[k] = quotient(1.0, norms2, usable)
        alpha = overlap * self.inverse_norms2[k]
        self.r2 = self.kept.shorten(k, self.r, alpha)
        self.coefficients += alpha * row
        self.taken += 1

    def solution(self) -> Array:
        """y, a new field."""
        return self.kept.solution(self.r, self.coefficients[: self.taken])

    def _direct(self, k: int, z: Array) -> None:
        """Step 1: z = K r; powers of two change no digit, and squares of small residuals do not underflow."""
        xp = self.A.xp
        scale = xp.exp2(-(xp.frexp(self.r2)[1] // 2)).astype(self.r.real.dtype)
        lane_blas.lane_scale(self.r, scale, z)
        image = z
        if self.preconditioner is not None:
            image = self.preconditioner.apply(converted(z, self.preconditioner.dtype))
        self.kept.enter(k, z, image)


class _GCRRecurrence:
    """GCR between two restarts, in the precision of A; no direction outlives a replacement."""

    lag = 0

    def __init__(self, space: GCRSpace, size: int, target: Vector) -> None:
        self.space, self.size = space, size
        self.target2, self.r2 = target**2, as_numpy(space.r2)

    @property
    def full(self) -> bool:
        return self.space.taken == self.size

    @property
    def correction(self) -> Array:
        return self.space.solution()

    def replace(self, residual: Array, target: Vector) -> None:
        r = converted(residual, self.space.r.dtype)
        self.space.begin(r, to_device_like(target**2, r))
        self.target2, self.r2 = target**2, as_numpy(self.space.r2)

    def directions(self, columns: NDArray[np.intp]) -> None:
        """None are kept."""

    def start(self) -> int:
        self.space.step()
        return self.space.r.shape[-1]

    def estimate(self) -> Vector:
        r2, before = as_numpy(self.space.r2), self.r2
        if not np.isfinite(r2).all():
            raise BreakdownError(SolveStatus.NOT_FINITE)
        still_open = r2 > self.target2
        if still_open.any() and (r2 == before)[still_open].all():
            raise BreakdownError(SolveStatus.BREAKDOWN)
        self.r2 = r2
        return np.sqrt(r2)
