"""Conjugate gradients on A^H A x = A^H b for an operator A that is not Hermitian.

The frame of the solver measures |b - A x|, and that is what has to reach the tolerance. The recurrence knows
A^H (b - A x) alone; its norm tells the other by the ratio of the two at the last replacement. Low modes make
the true residual the larger one in the end: then it is measured, and the search goes on with its directions
and a better ratio.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, Product
from stages.lqcd.kernels.dispatch import Array, Kernels
from stages.lqcd.solvers.krylov import KrylovSolver, iterated
from stages.lqcd.solvers.recurrence import Recurrence, Vector
from stages.lqcd.solvers.reliable import Progress, column_norms
from stages.lqcd.solvers.solution import Solution


@dataclass(frozen=True)
class NormalEquations:
    """A solver for any regular operator; slow but sure, as its condition number is the square of that of A.

    solver: batched CG or block CGrQ, whose tolerance is on |b - A x| / |b|. An iteration takes two products,
    with A and its adjoint.
    """

    solver: KrylovSolver

    def solve(
        self,
        A: LinearOperator,
        b: Array,
        x0: Array | None = None,
        on_failure: str = "raise",
        progress: Progress | None = None,
    ) -> Solution:
        """The solution of A x = b, as `KrylovSolver.solve`; `residual` is that of this system.

        `matvecs` leaves out the product with the adjoint at each replacement.
        """
        return iterated(self.solver, self._recurrence, A, b, x0, on_failure, progress)

    def _recurrence(self, A: LinearOperator, kernels: Kernels) -> Recurrence:
        return _NormalRecurrence(A, kernels, self.solver.recurrence(Product(A.adjoint, A), kernels))


class _NormalRecurrence:
    """A recurrence on A^H A y = A^H r that speaks of the norms of r."""

    full = False

    def __init__(self, A: LinearOperator, kernels: Kernels, normal: Recurrence) -> None:
        self.adjoint, self.kernels, self.normal = A.adjoint, kernels, normal
        self.narrows, self.update_at, self.lag = normal.narrows, normal.update_at, normal.lag
        self.ratio: Vector = np.ones(0)

    @property
    def width(self) -> int:
        """Twice the columns: the normal operator has two products."""
        return 2 * self.normal.width

    @property
    def correction(self) -> Array:
        return self.normal.correction

    def replace(self, residual: Array, target: Vector, kept: NDArray[np.intp] | None) -> None:
        r = residual.astype(self.adjoint.dtype, copy=False)
        normal_residual = self.adjoint.apply(r)
        norms, normal_norms = column_norms(self.kernels, r), column_norms(self.kernels, normal_residual)
        self.ratio = np.divide(norms, normal_norms, out=np.ones_like(norms), where=normal_norms > 0)
        self.normal.replace(normal_residual, target / self.ratio, kept)

    def start(self) -> None:
        self.normal.start()

    def estimate(self) -> Vector:
        return self.ratio * self.normal.estimate()
