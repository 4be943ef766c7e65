"""Block deflation: low modes of a Hermitian operator B, for solves with A = B + shift at any shift >= 0.

With vectors V, gram = V^H V and projected = V^H B V, both taken of the vectors as they are stored,

    guess(b) = V (V^H A V)^-1 V^H b,   V^H A V = projected + shift gram,

has the least error in the norm of A of all combinations of V, however the vectors were rounded; with exact
eigenvectors A guess(b) - b has no component along them. Their small matrices are diagonalised once, V^H B V Q
= V^H V Q theta with Q^H V^H V Q = 1 (Rayleigh and Ritz), so that every shift is two products of matrices:

    guess(b) = V Q (theta + shift)^-1 Q^H V^H b,   remainder(x) = x - V Q Q^H V^H x.

As an initial guess alone it is due to R. B. Morgan, SIAM J. Matrix Anal. Appl. 16 (1995) 1154, and, for many
right-hand sides, to A. Stathopoulos and K. Orginos, arXiv:0707.0131. Applied again to the true residual at
each replacement it also removes the low modes that rounding has let grow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator, Shifted
from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash, StaggeredDslash
from stages.lqcd.kernels import basis, lane_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import converted
from stages.lqcd.kernels.host_lapack import Matrix
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.solvers.corrections import Correction
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.low_pass import LowPass, upper_bound
from stages.lqcd.solvers.reliable_updates import Progress
from stages.lqcd.solvers.ritz import WIDTH, Ritz, RitzSpace, RitzVectors, residual_norms, ritz_pairs
from stages.lqcd.solvers.solution import Solution

CHECKED = 3
"""Vectors whose residual is measured again by `Deflation.check`."""

FOREIGN = 10
"""Times the recorded residual, and ROUNDING of the largest eigenvalue, are too much for vectors of this
operator: `Deflation.check` says what is noticed and what is not.
"""
ROUNDING = 1e-10

ZERO_MODE = 1e-12
"""Eigenvalues of B up to this are zero, and D_oe v vanishes: of a free naive field, where the largest is 16,
rounding leaves 4e-15.
"""

SMOOTHING = 4
"""Degree of the polynomial of B that smooths vectors in single precision before and after a hop."""

KEPT = 0.5
"""What it leaves of a deflated mode at least."""


@dataclass(frozen=True)
class Deflation(RitzSpace):
    """vectors V ``[*shape, k]``, complex64 or complex128 where they compute, and what is known of them.

    gram = V^H V and projected = V^H B V: complex128 ``[k, k]`` on the host. residuals: float64 ``[k]``,
    |B v - rho v| of the unit vectors v, rho their Rayleigh quotients; None where nobody measured them. Blocks
    of right-hand sides may have another precision than V: sums are taken in double.
    """

    vectors: Array
    gram: Matrix
    projected: Matrix
    residuals: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        k = self.vectors.shape[-1]
        if k < 1 or self.gram.shape != (k, k) or self.projected.shape != (k, k):
            raise InputError(
                f"a deflation space of k >= 1 vectors has a Gram and a projected matrix of shape (k, k), got "
                f"{k} vectors, {self.gram.shape} and {self.projected.shape}"
            )
        if self.residuals is not None and self.residuals.shape != (k,):
            raise InputError(f"{k} vectors have as many residuals, got {self.residuals.shape}")

    @classmethod
    def measured(cls, B: LinearOperator, vectors: Array) -> Self:
        """The space of these vectors ``[*B.shape, k]``; its matrices and residuals measured in double."""
        project, k = basis.project, vectors.shape[-1]
        gram, projected, residuals = np.empty((k, k), complex), np.empty((k, k), complex), np.empty(k)
        for first in range(0, k, WIDTH):
            columns = np.arange(first, min(first + WIDTH, k))
            v, bv = _applied(B, vectors, columns)
            gram[:, columns], projected[:, columns] = (
                as_numpy(project(vectors, v)),
                as_numpy(project(vectors, bv)),
            )
            residuals[columns] = residual_norms(v, bv)
        return cls(vectors, gram, projected, residuals)

    def __len__(self) -> int:
        return len(self.gram)

    @property
    def eigenvalues(self) -> NDArray[np.float64]:
        """Ritz values of B in the span of the vectors, float64 ``[k]``, ascending."""
        return self.ritz.values

    @cached_property
    def ritz(self) -> Ritz:
        """Ritz values theta and rotation Q. Raises InputError if the vectors are linearly dependent."""
        return ritz_pairs(self.projected, self.gram)

    def components(self, x: Array) -> Array:
        return self._ritz_vectors.components(x)

    def combination(self, components: Array, like: Array) -> Array:
        return self._ritz_vectors.combination(components, like)

    def check(self, B: LinearOperator) -> None:
        """Raises InputError unless B v = rho v holds for some of the vectors about as well as was recorded.

        Vectors of another gauge field or boundary condition are refused in every precision. A change of
        naik_epsilon by d makes residuals of about d / 2 (measured on 4^4), and is seen where that is FOREIGN
        times what was recorded: from 1e-9 on for vectors in double, 1e-5 in single, 1e-2 in half precision,
        whose residuals are 2e-4. A smaller change passes; solves, which end with true residuals, lose nothing
        but iterations. In a run the keys keep the spaces of different operators apart, however near.
        """
        if self.residuals is None:
            raise InputError(
                "this deflation space has no recorded residuals: measure it with Deflation.measured"
            )
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
        """Corrections for solves of A = B + A.shift; A is applied to each vector."""
        if A.shape != self.vectors.shape[:-1]:
            raise InputError(
                f"the deflation space has fields {self.vectors.shape[:-1]}, the operator {A.shape}"
            )
        if not isinstance(A, Shifted):
            raise InputError(f"deflation needs an operator that says its shift, got {type(A).__name__}")
        return Correction(self, A.shift, self.ritz_residuals(A, self.vectors))

    @cached_property
    def _ritz_vectors(self) -> RitzVectors:
        return RitzVectors(self.vectors, self.ritz)


@dataclass(frozen=True)
class StaggeredDeflation:
    """Deflation of 4 m^2 - D^2 on both parities by vectors V on the even sites, of B = -D_eo D_oe.

    The odd space is that of D_oe V, never stored. Its matrices are known: W = D_oe V has

        W^H W = V^H B V,   W^H (-D_oe D_eo) W = V^H B^2 V,

    and B^2 within the span of V is projected gram^-1 projected, beside what B takes out of it, of which the
    diagonal is known: the squares of the residuals. Zero modes have no odd partner, and W none of them.

    D_oe multiplies what rounding has mixed into v of high modes by up to |D| / sqrt(lambda): where V is in
    single precision, corrections take it out again by a low-pass polynomial of B.
    """

    dslash: StaggeredDslash
    even: Deflation

    def on(self, parity: int) -> Deflation | OddDeflation:
        """The deflation of fields on the sites of a parity."""
        return self.even if parity == EVEN else self._odd

    def __len__(self) -> int:
        return len(self.even)

    def check(self) -> None:
        """Raises InputError unless the vectors are eigenvectors of this dslash as well as was recorded."""
        self.even.check(SquaredDslash(self.dslash, EVEN))

    def correction(self, A: NormalOperator) -> Correction:
        """Corrections for solves of A; the first call for either parity applies B to each vector.

        They are computed in the precision of the residual, whatever that of V. Rounding that differs
        from one to the next would not be of a subspace: of a combination z of V it is as large as that of V,
        but D_oe takes it to up to |D| / sqrt(lambda) times as much of D_oe z. Raises InputError where A has
        other links that make the vectors none of its eigenvectors.
        """
        if A.dslash.links is not self.dslash.links:
            self.even.check(SquaredDslash(A.dslash, EVEN))
        if A.parity == EVEN:
            return Correction(self.even, A.shift, self._even_residuals)
        return Correction(self._smooth_odd, A.shift, self._odd_residuals)

    @cached_property
    def _even_residuals(self) -> NDArray[np.float64]:
        return self.even.ritz_residuals(SquaredDslash(self.dslash, EVEN), self.even.vectors)

    @cached_property
    def _odd_residuals(self) -> NDArray[np.float64]:
        return self._smooth_odd.ritz_residuals(SquaredDslash(self.dslash, ODD), self.even.vectors)

    @cached_property
    def _odd(self) -> OddDeflation:
        even = self.even
        squared = even.projected @ np.linalg.solve(even.gram, even.projected)
        if even.residuals is not None:
            squared += np.diag(even.gram.diagonal() * even.residuals**2)
        basis = even.ritz.rotation[:, has_odd_partner(even.eigenvalues)]
        gram, projected = (basis.conj().T @ matrix @ basis for matrix in (even.projected, squared))
        theta, rotation = ritz_pairs(projected, gram)
        return OddDeflation(self.dslash, RitzVectors(even.vectors, Ritz(theta, basis @ rotation)))

    @cached_property
    def _smooth_odd(self) -> OddDeflation:
        """With a low-pass, unless V is double or has modes that it would take out."""
        if self.even.vectors.dtype == np.complex128:
            return self._odd
        B = SquaredDslash(self.dslash.astype(np.complex128), EVEN)
        low_pass = LowPass(upper_bound(B, self.even.vectors), SMOOTHING)
        kept = low_pass.values(self._odd.eigenvalues) > KEPT
        return replace(self._odd, low_pass=low_pass) if kept.all() else self._odd


@dataclass(frozen=True)
class OddDeflation(RitzSpace):
    """Deflation on the odd sites in the space of W = D_oe V; lifted: V Q with orthonormal D_oe V Q.

    low_pass: if given, W = D_oe p(B) V: with eigenvectors the same but for the factor p(theta). Those of
    rounded vectors are orthonormal up to their rounding.
    """

    dslash: StaggeredDslash
    lifted: RitzVectors
    low_pass: LowPass | None = None

    @property
    def eigenvalues(self) -> NDArray[np.float64]:
        """Ritz values of -D_oe D_eo, one for each vector with an odd partner, ascending."""
        return self.lifted.pairs.values

    def components(self, x: Array) -> Array:
        """W^H x = -V^H D_eo x, of orthonormal W."""
        components = self.lifted.components(self._smoothed(self._hop(EVEN, x, -1.0)))
        return self._divided(components)

    def combination(self, components: Array, like: Array) -> Array:
        lifted = self.lifted.combination(self._divided(components), like)
        return self._hop(ODD, self._smoothed(lifted))

    def _smoothed(self, x: Array) -> Array:
        """p(B) x on the even sites; x is overwritten."""
        if self.low_pass is None:
            return x
        return self.low_pass.apply(SquaredDslash(self.dslash, EVEN).astype(x.dtype), x)

    def _divided(self, components: Array) -> Array:
        """Without the factors p(theta) of the vectors."""
        if self.low_pass is None:
            return components
        return components / to_device_like(self.low_pass.values(self.eigenvalues), components)[:, None]

    def _hop(self, parity: int, x: Array, sign: float = 1.0) -> Array:
        """Sign D x on the sites of a parity."""
        return self.dslash.astype(x.dtype).apply_to(parity, x, b=sign)


@dataclass(frozen=True)
class DeflatedSolver:
    """A Krylov solver that deflates: an initial guess, and the same correction at each replacement."""

    solver: KrylovSolver
    deflation: Deflation | StaggeredDeflation

    def solve(
        self,
        A: Any,
        b: Array,
        x0: Array | None = None,
        on_failure: str = "raise",
        progress: Progress | None = None,
    ) -> Solution:
        """Solution of A x = b for A = B + A.shift, by `KrylovSolver.solve`.

        Raises InputError for A without a shift.
        """
        return self.solver.solve(A, b, x0, on_failure, progress, self.deflation.correction(A))


def has_odd_partner(eigenvalues: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True where D_oe v does not vanish, of modes v of these eigenvalues of B."""
    return eigenvalues > ZERO_MODE


def _applied(B: LinearOperator, vectors: Array, chosen: NDArray[np.intp]) -> tuple[Array, Array]:
    """The chosen columns v of vectors ``[*B.shape, k]`` and B v, in double precision."""
    v = converted(lane_blas.lane_take(vectors, chosen), np.complex128)
    return v, B.astype(np.complex128).apply(v)
