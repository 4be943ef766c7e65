"""The inverse of an operator, as a solver computes it: again an operator, so that methods compose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stages.lqcd.dirac.operator import LinearOperator, SameFields, Solver
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign


@dataclass(frozen=True)
class Inverse(SameFields):
    """A^-1 to the solver's tolerance; `apply` raises NotConverged where the solver does."""

    solver: Solver

    @property
    def hermitian(self) -> bool:
        return self.operator.hermitian

    @property
    def positive_definite(self) -> bool:
        return self.operator.positive_definite

    @property
    def adjoint(self) -> Inverse:
        return Inverse(self.operator.adjoint, self.solver)

    def apply(self, x: Array, out: Array | None = None) -> Array:
        solution = self.solver.solve(self.operator, x).x
        if out is None:
            return solution
        assign(out, solution)
        return out

    def astype(self, dtype: Any) -> Inverse:
        return Inverse(self.operator.astype(dtype), self.solver)


def inverse(solver: Solver, operator: LinearOperator) -> Inverse:
    """The operator x -> A^-1 x, solved anew at each application."""
    return Inverse(operator, solver)
