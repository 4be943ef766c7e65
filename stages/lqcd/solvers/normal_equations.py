"""Conjugate gradients on A^H A x = A^H b for an operator A that is not Hermitian.

The frame of the solver measures |b - A x|, and that is what has to reach the tolerance. The recurrence knows
A^H (b - A x) alone; its norm tells the other by the ratio of the two at the last replacement. Low modes make
the true residual the larger one in the end: then it is measured, and the search goes on with its directions
and a better ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator, Storage
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import converted
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.solvers.krylov import KrylovSolver, iterated
from stages.lqcd.solvers.recurrence import Directions, Recurrence, column_norms
from stages.lqcd.solvers.solution import Solution, SolveOptions, Vector


@dataclass(frozen=True)
class NormalEquations:
    """A solver for any regular operator; slow but sure, as its condition number is the square of that of A.

    solver: batched CG or block CGrQ, whose tolerance is on |b - A x| / |b|. An iteration takes two products,
    with A and its adjoint.
    """

    solver: KrylovSolver

    def solve(self, A: LinearOperator, b: Array, **options: Unpack[SolveOptions]) -> Solution:
        """The solution of A x = b, as `KrylovSolver.solve`; `residual` is that of this system.

        `matvecs` leaves out the product with the adjoint at each replacement. Half precision is for even-odd
        Wilson operators: InputError for others, and for an operator without an adjoint.
        """
        if not hasattr(type(A), "adjoint"):
            raise InputError(
                f"normal equations need an operator with an adjoint, which {type(A).__name__} has not: give "
                "the even-odd system of Wilson quarks (EvenOdd, WilsonSchur), and a Hermitian positive "
                "definite operator to BatchedCG or BlockCGrQ"
            )
        if self.solver.half and A.shape[1:] != (COMPONENTS,):
            raise InputError(
                "half precision on normal equations is for even-odd Wilson operators, not for "
                f"{type(A).__name__}: iterate in 'double-single'"
            )
        return iterated(self.solver, self._begin, A, b, **options)

    def _begin(self, storage: Storage, residual: Array, target: Vector, directions: Directions) -> Recurrence:
        return _NormalRecurrence(self.solver, storage, residual, target, directions)


class _NormalRecurrence:
    """A recurrence on A^H A y = A^H r that speaks of the norms of r; ratio: of those to |A^H r|."""

    full = False

    def __init__(
        self, solver: KrylovSolver, storage: Storage, residual: Array, target: Vector, directions: Directions
    ) -> None:
        A: Any = storage.operator
        self.adjoint: LinearOperator = A.adjoint
        normal_residual, self.ratio = self._transformed(residual)
        self.normal = solver.begin(storage.normal(), normal_residual, target / self.ratio, directions)
        self.lag = self.normal.lag

    @property
    def correction(self) -> Array:
        return self.normal.correction

    def replace(self, residual: Array, target: Vector) -> None:
        normal_residual, self.ratio = self._transformed(residual)
        self.normal.replace(normal_residual, target / self.ratio)

    def directions(self, columns: NDArray[np.intp]) -> Directions:
        return self.normal.directions(columns)

    def start(self) -> int:
        """Twice the products of the recurrence: the normal operator has two."""
        return 2 * self.normal.start()

    def estimate(self) -> Vector:
        return self.ratio * self.normal.estimate()

    def believed(self, residual: Array) -> Vector:
        """|A^H r|, times the ratio of now."""
        return self.ratio * column_norms(self.adjoint.apply(converted(residual, self.adjoint.dtype)))

    def _transformed(self, residual: Array) -> tuple[Array, Vector]:
        r = converted(residual, self.adjoint.dtype)
        normal_residual = self.adjoint.apply(r)
        norms, normal_norms = column_norms(r), column_norms(normal_residual)
        ratio = np.divide(norms, normal_norms, out=np.ones_like(norms), where=normal_norms > 0)
        return converted(normal_residual, residual.dtype), ratio
