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
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.dirac.operator import LinearOperator, Storage, whole_storage
from stages.lqcd.kernels import block_blas, lane_blas, stream
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, converted, copied, field_like, zeros_like
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.half_update import (
    HalfBasis,
    half_basis_combine,
    half_basis_dots,
    half_basis_update,
)
from stages.lqcd.kernels.short_numbers import from_half, to_half
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.recurrence import BreakdownError, Directions, Recurrence
from stages.lqcd.solvers.solution import SolveStatus, Vector

ROUNDING = 8
"""Times the rounding unit: what is left of a new w, relative to it, is noise below this."""


HALF_ROUNDING = 2.0**-16
"""Rounding unit of fields in 16 bits, relative to the largest part of a site."""


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
    half_storages: ClassVar[tuple[type[Storage], ...]] = (Storage,)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("restart", self.restart, 1)

    def check_operator(self, A: LinearOperator) -> None:
        """Any operator will do."""

    def storage(self, A: LinearOperator) -> Storage:
        """Whole fields; in half, whose directions have 16 bits, in single precision. Raises InputError."""
        if not self.half:
            return super().storage(A)
        if A.shape[1:] != (COMPONENTS,):
            raise InputError(
                f"half precision of GCR is for spinors on one parity, not for {type(A).__name__}: "
                "iterate in 'double-single'"
            )
        return whole_storage(A.astype(np.complex64))

    def begin(self, storage: Storage, residual: Array, target: Vector, directions: Directions) -> Recurrence:
        r = storage.stored(residual)
        target2 = to_device_like(target**2, r)
        kept = HalfDirections if self.half else WholeDirections
        space = GCRSpace(storage.operator, r, self.restart, self.preconditioner, target2, kept)
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


class Orthogonal(NamedTuple):
    """Step 2 for a new w: shares ``[k, N]`` of the w_j, |w|^2 before and after, w^H r after: ``[N]``."""

    beta: Array
    before: Array
    norms2: Array
    overlap: Array


class WholeDirections:
    """z and w ``[size, ..., N]`` of the precision of r."""

    def __init__(self, r: Array, size: int) -> None:
        self.z = field_like(r, (size, *r.shape))
        self.w = field_like(self.z)
        self.rounding = float(np.finfo(r.dtype).eps)

    def room(self, k: int, r: Array) -> tuple[Array, Array]:
        """Fields like r for z_k and A z_k."""
        return self.z[k], self.w[k]

    def enter(self, k: int, z: Array, image: Array) -> None:
        """Keep `image`, perhaps z itself, as z_k, and write into z what is kept."""
        if image is not z:
            assign(z, image)

    def orthogonalise(self, k: int, w: Array, inverse_norms2: Array, r: Array) -> Orthogonal:
        """Keep w without its parts along the w_j before it as w_k; their 1 / |w_j|^2 ``[k, N]``."""
        products = lane_blas.lane_dots(self.w[: k + 1], w)
        beta = -products[:k] * inverse_norms2
        if k:
            lane_blas.lane_update(w, self.w[:k], beta)
        newest = self.w[k : k + 1]
        norms2, overlap = lane_blas.lane_dots(newest, w)[0].real, lane_blas.lane_dots(newest, r)[0]
        return Orthogonal(beta, products[-1].real, norms2, overlap)

    def shorten(self, k: int, r: Array, alpha: Array) -> Array:
        """``r -= alpha w_k``; returns |r|^2."""
        lane_blas.lane_update(r, self.w[k : k + 1], -alpha[None])
        return lane_blas.lane_dots(r[None], r)[0].real

    def solution(self, r: Array, coefficients: Array) -> Array:
        """sum_j coefficients[j] z_j, a new field like r."""
        y = zeros_like(r)
        if len(coefficients):
            lane_blas.lane_update(y, self.z[: len(coefficients)], coefficients)
        return y


class HalfDirections:
    """z and w in 16 bits (`stages.lqcd.kernels.half_update`), of spinors in single precision on one parity.

    A is applied to z as it is kept, and r is shortened by w as it is kept: rounding of z changes nothing but
    the direction, and that of w what r misses of b - A y. Sums are those of w before it is rounded.
    """

    def __init__(self, r: Array, size: int) -> None:
        together = HalfBasis.like(r, 2 * size)  # whose memory has room for a solution afterwards
        self.z, self.w = together.fields(0, size), together.fields(size, 2 * size)
        self.rounding = HALF_ROUNDING

    def room(self, k: int, r: Array) -> tuple[Array, Array]:
        """New fields like r, whose memory is free again after the step: at replacements others need it."""
        return field_like(r), field_like(r)

    def enter(self, k: int, z: Array, image: Array) -> None:
        """Keep `image`, perhaps z itself, as z_k, and write into z what is kept."""
        to_half(converted(image, z.dtype), self.z[k])
        from_half(self.z[k], z)

    def orthogonalise(self, k: int, w: Array, inverse_norms2: Array, r: Array) -> Orthogonal:
        """Keep w without its parts along the w_j before it, which are orthogonal, as w_k."""
        products = half_basis_dots(self.w.fields(0, k), w)
        beta = -products * inverse_norms2
        overlap, norms2 = half_basis_combine(w, self.w.fields(0, k), beta, self.w[k], r)
        before = norms2.real - (beta * products.conj()).real.sum(axis=0)
        return Orthogonal(beta, before, norms2.real, overlap)

    def shorten(self, k: int, r: Array, alpha: Array) -> Array:
        """``r -= alpha w_k``; returns |r|^2."""
        return half_basis_update(r, self.w.fields(k, k + 1), -alpha[None])

    def solution(self, r: Array, coefficients: Array) -> Array:
        """sum_j coefficients[j] z_j, a new field like r."""
        y = zeros_like(r)
        half_basis_update(y, self.z.fields(0, len(coefficients)), coefficients)
        return y


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
        directions: type[WholeDirections | HalfDirections] = WholeDirections,
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
        beta, before, norms2, overlap = self.kept.orthogonalise(k, w, self.inverse_norms2[:k], self.r)
        if k:
            row[:k] = (beta[:, None] * self.combinations[:k, :k]).sum(axis=0)
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
