"""Block deflation: low modes of a Hermitian operator B, for solves with A = B + shift at any shift >= 0.

With vectors V, gram = V^H V and projected = V^H B V, both taken of the vectors as they are stored,

    guess(b) = V (V^H A V)^-1 V^H b,   V^H A V = projected + shift gram,

has the least error in the norm of A of all combinations of V, however the vectors were rounded; with exact
eigenvectors A guess(b) - b has no component along them. The small matrices are diagonalised once, V^H B V Q
= V^H V Q theta with Q^H V^H V Q = 1 (Rayleigh and Ritz). With the Ritz vectors q, columns of V Q,

    guess(b) = sum_q q (theta + shift)^-1 q^H b,   within(x) = sum_q q q^H x,   remainder(x) = x - within(x).

As an initial guess alone it is due to R. B. Morgan, SIAM J. Matrix Anal. Appl. 16 (1995) 1154, and, for many
right-hand sides, to A. Stathopoulos and K. Orginos, arXiv:0707.0131. Applied again to the true residual r at
each replacement it also removes the low modes that rounding has let grow. A correction y = guess(r) leaves

    r - A y = r - sum_q q c_q - sum_q R_q c_q / (theta + shift),   c_q = q^H r,   R_q = B q - theta q.

The first sum is what deflation takes away. The second, zero for exact vectors, is new: a solver has not seen
it before, and reduces it from its beginning, without what its search directions know. Its norm relative to
|r|, taken as if the R_q were orthogonal, is the *disturbance* by a correction. It grows as the square of the
vectors' error, because c_q is itself what their error has let in since the correction before, and is the
smaller the earlier the next one comes. A solver that would lose more than it gains goes on without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import scipy
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import basis, block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import converted, zeros_like
from stages.lqcd.kernels.host_lapack import Matrix

WIDTH = 16
"""Vectors that B is applied to at a time."""

DEPENDENT = 1e-13
"""Lowest eigenvalue of the Gram matrix of unit vectors that are dependent in double precision."""

CHECKED = 3
"""Vectors whose residual is measured again by `Space.check`."""

FOREIGN = 10
"""Times the recorded residual, and ROUNDING of the largest eigenvalue, are too much for vectors of this
operator: `Space.check` says what is noticed and what is not.
"""
ROUNDING = 1e-10

DEFLATE_AT, DEFLATE_OFTEN_AT = 1e-2, 0.1
"""Fall of a true residual after which the block is corrected again, with exact and with inexact vectors. For
exact ones the second would double the products with the vectors and save no iteration.
"""

NEARLY_EXACT = 1e-4
"""Disturbance by the first correction up to which vectors count as exact."""


@dataclass(frozen=True)
class Space:
    """The span of vectors V ``[*shape, k]``, complex64 or complex128 where they compute.

    gram = V^H V and projected = V^H B V: complex128 ``[k, k]`` on the host. eigenvalues: Ritz values theta of
    B, float64 ``[n]`` ascending; rotation: Q ``[k, n]``, n = k where it spans all of V. residuals: float64
    ``[k]``, |B v - rho v| of the unit vectors v, rho their Rayleigh quotients; None where nobody measured
    them. Blocks of right-hand sides ``[*shape, N]`` may have another precision than V: sums are taken in
    double.
    """

    vectors: Array
    gram: Matrix
    projected: Matrix
    eigenvalues: NDArray[np.float64]
    rotation: Matrix
    residuals: NDArray[np.float64] | None = None

    @classmethod
    def of(
        cls, vectors: Array, gram: Matrix, projected: Matrix, residuals: NDArray[np.float64] | None = None
    ) -> Self:
        """The space of these vectors and their matrices. Raises InputError if they are linearly dependent."""
        k = vectors.shape[-1]
        if k < 1 or gram.shape != (k, k) or projected.shape != (k, k):
            raise InputError(
                f"a deflation space of k >= 1 vectors has a Gram and a projected matrix of shape (k, k), got "
                f"{k} vectors, {gram.shape} and {projected.shape}"
            )
        if residuals is not None and residuals.shape != (k,):
            raise InputError(f"{k} vectors have as many residuals, got {residuals.shape}")
        return cls(vectors, gram, projected, *ritz_pairs(projected, gram), residuals)

    @classmethod
    def measured(cls, B: LinearOperator, vectors: Array) -> Self:
        """The space of these vectors ``[*B.shape, k]``; its matrices and residuals measured in double."""
        return cls.of(vectors, *matrices_of(B, vectors))

    @classmethod
    def of_eigenpairs(
        cls, values: NDArray[np.float64], vectors: Array, residuals: NDArray[np.float64]
    ) -> Self:
        """The space of eigenvectors, orthonormal, of ascending eigenvalues and known residuals ``[k]``.

        They are its Ritz pairs as they are: no operator is applied to them, here or for corrections.
        """
        one = np.eye(len(values), dtype=complex)
        return cls(vectors, one, np.diag(values).astype(complex), values, one, residuals)

    def __len__(self) -> int:
        return len(self.gram)

    def components(self, x: Array) -> Array:
        """q^H x ``[n, N]``, complex128, where x is: sums are taken in double."""
        return self._rotation.conj().T @ basis.project(self.vectors, x)

    def combination(self, components: Array, like: Array) -> Array:
        """The sum of q times its component, of the shape and dtype of `like`."""
        out = zeros_like(like)
        basis.add_combination(out, self.vectors, self._rotation @ components)
        return out

    @cached_property
    def _rotation(self) -> Array:
        return to_device_like(self.rotation, self.vectors)

    def inverse(self, shift: float) -> NDArray[np.float64]:
        """1 / (theta + shift) ``[n]``. Raises InputError unless all are positive."""
        theta = self.eigenvalues
        if not (theta + shift > 0).all():
            raise InputError(
                f"the operator is not positive on its deflation space: the lowest eigenvalue {theta[0]:.3g} "
                f"and the shift {shift:.3g} add up to {theta[0] + shift:.3g}; take a larger mass"
            )
        return 1 / (theta + shift)

    def guess(self, shift: float, b: Array) -> Array:
        """The x of least error, in the norm of A = B + shift, of A x = b; of the dtype of b.

        Raises InputError unless A is positive in this space, and for another number of rows.
        """
        components = self.components(b)
        components *= to_device_like(self.inverse(shift), b)[:, None]
        return self.combination(components, b)

    def within(self, x: Array) -> Array:
        """The part of x ``[*shape, N]`` in this space."""
        return self.combination(self.components(x), x)

    def remainder(self, x: Array) -> Array:
        """The part of x that is orthogonal to this space."""
        within = self.within(x)
        return block_blas.difference(x, within, within)

    def ritz_residuals(self, B: LinearOperator) -> NDArray[np.float64]:
        """Norms |B q - theta q| of the Ritz vectors, float64 ``[n]``: measured, unless they are known."""
        n = len(self.eigenvalues)
        if self.residuals is not None and np.array_equal(self.rotation, np.eye(n)):
            return self.residuals
        residuals = np.empty(n)
        for first in range(0, n, WIDTH):
            chosen = slice(first, min(first + WIDTH, n))
            units = to_device_like(np.eye(n, dtype=complex)[:, chosen], self.vectors)
            q = self.combination(units, converted(self.vectors[..., chosen], np.complex128))
            residuals[chosen] = residual_norms(q, B.astype(np.complex128).apply(q))
        return residuals

    def check(self, B: LinearOperator) -> None:
        """Raises InputError unless B v = rho v holds for some of the vectors about as well as was recorded.

        Vectors of another gauge field or boundary condition are refused in every precision. A change of
        naik_epsilon by d makes residuals of about d / 2 (measured on 4^4), and is seen where that is FOREIGN
        times what was recorded: from 1e-9 on for vectors in double, 1e-5 in single, 1e-2 in half precision,
        whose residuals are 2e-4. A smaller change passes; solves, which end with true residuals, lose nothing
        but iterations. In a run the keys keep the spaces of different operators apart, however near.
        """
        if self.residuals is None:
            raise InputError("this deflation space has no recorded residuals: measure it with Space.measured")
        self._check_shape(B)
        chosen = np.unique(np.linspace(0, len(self) - 1, CHECKED).astype(int))
        residuals, recorded = residual_norms(*_applied(B, self.vectors, chosen)), self.residuals[chosen]
        wrong = ~(residuals <= FOREIGN * recorded + ROUNDING * self.eigenvalues[-1])
        if wrong.any():
            n = int(np.argmax(wrong))
            raise InputError(
                f"the deflation space is not of this operator: vector {chosen[n]} has a residual of "
                f"{residuals[n]:.2g}, {recorded[n]:.2g} was recorded; compute the space for this gauge "
                "field, boundary condition and naik_epsilon"
            )

    def correction(self, A: LinearOperator) -> Correction:
        """Corrections for solves of A = B + A.shift; A is applied to each vector of unknown residual."""
        self._check_shape(A)
        if not hasattr(A, "shift"):
            raise InputError(f"deflation needs an operator that says its shift, got {type(A).__name__}")
        return Correction(self, A.shift, self.ritz_residuals(A))

    def _check_shape(self, A: LinearOperator) -> None:
        if A.shape != self.vectors.shape[:-1]:
            raise InputError(
                f"the deflation space has fields {self.vectors.shape[:-1]}, the operator {A.shape}"
            )


@dataclass(frozen=True)
class Correction:
    """Corrections for A = B + shift in a space of Ritz vectors; residuals: their |B q - theta q| ``[n]``.

    Raises InputError unless A is positive in that space.
    """

    space: Space
    shift: float
    residuals: NDArray[np.float64]

    def __len__(self) -> int:
        """Ritz vectors of the space."""
        return len(self.residuals)

    def __call__(self, residual: Array, /) -> tuple[Array, NDArray[np.float64]]:
        """The correction y ``[*shape, N]`` in the precision of the residual; norms that A y adds ``[N]``."""
        components = self.space.components(residual)
        components *= to_device_like(self._inverse, residual)[:, None]
        added = to_device_like(self.residuals**2, residual) @ (components.real**2 + components.imag**2)
        return self.space.combination(components, residual), np.sqrt(as_numpy(added))

    @cached_property
    def _inverse(self) -> NDArray[np.float64]:
        return self.space.inverse(self.shift)


class CorrectionSchedule:
    """The corrections of one solve: when they are due, and whether they go on.

    tolerates(relative, reduction, share, first): whether the method gains by a correction that adds so much
    to the residual of the worst column, relative to that residual and to the norm that the solve has to
    reach; share: vectors of the space over columns of the block; first: at the start of a solve, when no
    search direction is lost. made: corrections so far.
    """

    def __init__(
        self, correct: Correction | None, tolerates: Callable[[float, float, float, bool], bool], rhs: int
    ) -> None:
        self._correct, self._tolerates = correct, tolerates
        self._norms, self._fall = np.full(rhs, np.inf), DEFLATE_AT
        self.made = 0

    @property
    def active(self) -> bool:
        """True if there may be another one."""
        return self._correct is not None

    @property
    def replaced_at(self) -> float:
        """Fall of an estimated residual in one precision that asks for a correction, 0 for exact vectors."""
        return self._fall if self._fall > DEFLATE_AT else 0.0

    def due(self, norms: NDArray[np.float64], columns: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Columns whose norms have fallen far enough since the last correction."""
        return norms < self._fall * self._norms[columns]

    def correct(
        self, residual: Array, norms: NDArray[np.float64], target: NDArray[np.float64]
    ) -> Array | None:
        """The correction of a residual whose columns had these norms; None, now and ever, if it disturbs.

        target: norms to reach. Columns of the residual that are done are zero.
        """
        assert self._correct is not None
        correction, added = self._correct(residual)
        relative, reduction = (float(np.max(added / np.where(each > 0, each, 1))) for each in (norms, target))
        first = self.made == 0
        if not self._tolerates(relative, reduction, len(self._correct) / norms.size, first):
            self._correct = None
            return None
        if first and relative > NEARLY_EXACT:
            self._fall = DEFLATE_OFTEN_AT
        self.made += 1
        return correction

    def enter(self, norms: NDArray[np.float64], columns: NDArray[np.intp]) -> None:
        """Note the norms after a correction."""
        self._norms[columns] = norms


def ritz_pairs(projected: Matrix, gram: Matrix) -> tuple[NDArray[np.float64], Matrix]:
    """Theta ascending and Q with Q^H V^H V Q = 1, Q^H V^H B V Q = theta, from V^H B V and V^H V ``[k, k]``.

    Raises InputError if the vectors are linearly dependent.
    """
    if not len(gram):
        return np.empty(0), np.empty((0, 0), complex)
    norms = np.sqrt(gram.diagonal().real)
    scale = np.outer(norms, norms)
    unit = _hermitian(gram / scale)
    try:
        if not np.linalg.eigvalsh(unit)[0] > DEPENDENT:
            raise np.linalg.LinAlgError
        values, rotation = scipy.linalg.eigh(_hermitian(projected / scale), unit)
    except (np.linalg.LinAlgError, ValueError) as error:
        raise InputError(
            f"the {len(gram)} vectors of the deflation space are linearly dependent or not finite: "
            "compute them again"
        ) from error
    return values, rotation / norms[:, None]


def matrices_of(B: LinearOperator, vectors: Array) -> tuple[Matrix, Matrix, NDArray[np.float64]]:
    """V^H V, V^H B V and residuals of vectors ``[*B.shape, k]``, as of a `Space`, measured in double."""
    k = vectors.shape[-1]
    gram, projected, residuals = np.empty((k, k), complex), np.empty((k, k), complex), np.empty(k)
    for first in range(0, k, WIDTH):
        columns = np.arange(first, min(first + WIDTH, k))
        v, bv = _applied(B, vectors, columns)
        gram[:, columns] = as_numpy(basis.project(vectors, v))
        projected[:, columns] = as_numpy(basis.project(vectors, bv))
        residuals[columns] = residual_norms(v, bv)
    return gram, projected, residuals


def residual_norms(v: Array, bv: Array) -> NDArray[np.float64]:
    """|B v - rho v| / |v| with rho = v^H B v / v^H v, of each column; overwrites bv."""
    norms2 = block_blas.norms2(v)
    lane_blas.lane_add(bv, v, -(block_blas.dots(v, bv).real / norms2))
    return np.sqrt(as_numpy(block_blas.norms2(bv) / norms2))


def _applied(B: LinearOperator, vectors: Array, chosen: NDArray[np.intp]) -> tuple[Array, Array]:
    """The chosen columns v of vectors ``[*B.shape, k]`` and B v, in double precision."""
    v = converted(lane_blas.lane_take(vectors, chosen), np.complex128)
    return v, B.astype(np.complex128).apply(v)


def _hermitian(matrix: Matrix) -> Matrix:
    return (matrix + matrix.conj().T) / 2
