"""Deflated solves, and deflation of staggered normal operators on both parities by the low modes of one.

The odd partners of vectors V on the even sites are W = D_oe V. Rounding has mixed high modes into v, and D_oe
multiplies them by up to |D| / sqrt(lambda); a polynomial p of B, one at zero and small above, takes them out
again. Chebyshev polynomials of the fourth kind, W_k(1 - 2 x / high) / (2 k + 1), have the least maximum of
sqrt(x) |p(x)| on (0, high) with p(0) = 1: it is sqrt(high) / (2 k + 1) (J. Lottes, arXiv:2202.08830). The
square root is what a hop makes of noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, affine
from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash, StaggeredDslash
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.transfer import sent_like
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.solution import Solution, SolveOptions
from stages.lqcd.solvers.space import Correction, Space, ritz_pairs

ZERO_MODE = 1e-12
"""Eigenvalues of B up to this are zero, and D_oe v vanishes: of a free naive field, where the largest is 16,
rounding leaves 4e-15.
"""

SMOOTHING = 4
"""Degree of the polynomial of B that smooths vectors in single precision before and after a hop."""

KEPT = 0.5
"""What it leaves of a deflated mode at least."""

POWER_STEPS = 20
MARGIN = 1.2
"""Times the estimate after so many power steps is above the largest eigenvalue."""


@dataclass(frozen=True)
class StaggeredSpace:
    """Deflation of 4 m^2 - D^2 on both parities by vectors V on the even sites, of B = -D_eo D_oe.

    The odd space is that of W = D_oe V, never stored. Its matrices are known:

        W^H W = V^H B V,   W^H (-D_oe D_eo) W = V^H B^2 V,

    and B^2 within the span of V is projected gram^-1 projected, beside what B takes out of it, of which the
    diagonal is known: the squares of the residuals. Zero modes have no odd partner, and W none of them.
    Where V is in single precision, corrections smooth it by a low-pass polynomial of B.
    """

    dslash: StaggeredDslash
    even: Space

    def on(self, parity: int) -> Space:
        """The space of fields on the sites of a parity."""
        return self.even if parity == EVEN else self._odd

    def __len__(self) -> int:
        return len(self.even)

    def lowest(self, count: int) -> StaggeredSpace:
        """The space of so many of the lowest vectors, a view; all of them: the space itself."""
        if count == len(self):
            return self
        gram, projected = (matrix[:count, :count] for matrix in (self.even.gram, self.even.projected))
        residuals = None if self.even.residuals is None else self.even.residuals[:count]
        return StaggeredSpace(
            self.dslash, Space.of(self.even.vectors[..., :count], gram, projected, residuals)
        )

    def check(self) -> None:
        """Raises InputError unless the vectors are eigenvectors of this dslash as well as was recorded."""
        self.even.check(SquaredDslash(self.dslash, EVEN))

    def correction(self, A: NormalOperator) -> Correction:
        """Corrections for solves of A; the first call for a parity applies B to vectors of unknown residual.

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
        return self.even.ritz_residuals(SquaredDslash(self.dslash, EVEN))

    @cached_property
    def _odd_residuals(self) -> NDArray[np.float64]:
        return self._smooth_odd.ritz_residuals(SquaredDslash(self.dslash, ODD))

    @cached_property
    def _odd(self) -> OddSpace:
        even = self.even
        squared = even.projected @ np.linalg.solve(even.gram, even.projected)
        if even.residuals is not None:
            squared += np.diag(even.gram.diagonal() * even.residuals**2)
        basis = even.rotation[:, has_odd_partner(even.eigenvalues)]
        gram, projected = (basis.conj().T @ matrix @ basis for matrix in (even.projected, squared))
        theta, rotation = ritz_pairs(projected, gram)
        pairs = theta, basis @ rotation
        return OddSpace(even.vectors, even.projected, squared, *pairs, dslash=self.dslash)

    @cached_property
    def _smooth_odd(self) -> OddSpace:
        """With a low-pass, unless V is double or has modes that it would take out."""
        if self.even.vectors.dtype == np.complex128:
            return self._odd
        B = SquaredDslash(self.dslash.astype(np.complex128), EVEN)
        low_pass = LowPass(upper_bound(B, self.even.vectors), SMOOTHING)
        kept = low_pass.values(self._odd.eigenvalues) > KEPT
        return replace(self._odd, low_pass=low_pass) if kept.all() else self._odd


@dataclass(frozen=True)
class OddSpace(Space):
    """The odd partners W = D_oe V of vectors V on the even sites; gram, projected: those of W.

    eigenvalues: one for each vector with an odd partner. low_pass: if given, W = D_oe p(B) V: with
    eigenvectors the same but for the factor p(theta). Those of rounded vectors are orthonormal up to their
    rounding.
    """

    dslash: StaggeredDslash = field(kw_only=True)
    low_pass: LowPass | None = field(default=None, kw_only=True)

    def components(self, x: Array) -> Array:
        """W^H x = -V^H D_eo x, of orthonormal W."""
        return self._divided(super().components(self._smoothed(self._hop(EVEN, x, -1.0))))

    def combination(self, components: Array, like: Array) -> Array:
        lifted = super().combination(self._divided(components), like)
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
    space: Space | StaggeredSpace

    def solve(self, A: Any, b: Array, **options: Unpack[SolveOptions]) -> Solution:
        """Solution of A x = b for A = B + A.shift, by `KrylovSolver.solve`.

        Raises InputError for A without a shift.
        """
        options["deflate"] = self.space.correction(A)
        return self.solver.solve(A, b, **options)


def has_odd_partner(eigenvalues: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True where D_oe v does not vanish, of modes v of these eigenvalues of B."""
    return eigenvalues > ZERO_MODE


@dataclass(frozen=True)
class LowPass:
    """p of this degree for eigenvalues from 0 to `high`."""

    high: float
    degree: int

    @cached_property
    def roots(self) -> NDArray[np.float64]:
        """float64 ``[degree]``, descending."""
        angles = 2 * np.pi * np.arange(self.degree, 0, -1) / (2 * self.degree + 1)
        return self.high * (1 - np.cos(angles)) / 2

    def values(self, eigenvalues: NDArray[np.float64]) -> NDArray[np.float64]:
        """p(eigenvalue)."""
        return np.prod(1 - np.asarray(eigenvalues)[..., None] / self.roots, axis=-1)

    def apply(self, B: LinearOperator, x: Array) -> Array:
        """p(B) x, in x or in another array: x is overwritten."""
        spare = field_like(x)
        for root in self.roots:
            affine(B, 1.0, -1 / root, x, spare)
            x, spare = spare, x
        return x


def upper_bound(B: LinearOperator, like: Array) -> float:
    """A bound of the eigenvalues of B, usually 10 to 20 % too high. like: a field of where B works."""
    rng = np.random.default_rng(20261121)
    x = sent_like(rng.normal(size=(*B.shape, 1)).astype(B.dtype), like)
    for _ in range(POWER_STEPS):
        x = B.apply(x)
        norms = block_blas.norms(x)
        lane_blas.lane_divide(x, norms.astype(x.real.dtype), x)
    return MARGIN * float(norms[0])
