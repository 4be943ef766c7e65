"""Iterations of reliable updates and of defect correction, in single and in half, for several delta.

delta: the fall of a residual that asks for a true one, and the tolerance of a correction. BiCGstab iterates
on fields in 16 bits (`stages.lqcd.kernels.half_field`). No kernel does that for conjugate gradients on
Wilson's normal equations, whose half is emulated: what the single-precision operator reads and writes is
rounded to such fields; links and the solver's own fields stay in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.lqcd.dirac.operator import LinearOperator, SameFields, Solver
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign
from stages.lqcd.kernels.half_field import from_half, to_half
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.defect_correction import DefectCorrection
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.solvers.solution import Solution, SolveStatus

DELTAS = (0.1, 0.01, 0.001)


@dataclass(frozen=True)
class HalfInside(SameFields):
    """A whose complex64 form reads and writes 16-bit fields."""

    hermitian = False
    positive_definite = False

    @property
    def adjoint(self) -> HalfInside:
        return HalfInside(self.operator.adjoint)

    def astype(self, dtype: Any) -> HalfInside:
        return HalfInside(self.operator.astype(dtype))

    def apply(self, x: Array, out: Array | None = None) -> Array:
        if self.operator.dtype != np.complex64:
            return self.operator.apply(x, out)
        result = rounded(self.operator.apply(rounded(x)))
        if out is None:
            return result
        assign(out, result)
        return out


def rounded(x: Array) -> Array:
    """Fields ``[site, 12, N]`` as they come back from 16-bit storage."""
    return from_half(to_half(x))


def normal_cg(tolerance: float, limit: int, inner: str | None = None, delta: float | None = None) -> Solver:
    """Batched conjugate gradients on the normal equations."""
    return NormalEquations(BatchedCG(tolerance, limit, inner, delta))


METHODS: dict[str, Any] = {"BiCGstab": BiCGstab, "CG": normal_cg}
"""Makers of solvers from tolerance, limit, inner precision and delta."""


def columns(method: str, tolerance: float, limit: int) -> Iterator[tuple[str, bool, Solver]]:
    """Name, whether the operator emulates half, and the solver, of each column of a table."""
    make = METHODS[method]
    yield "double", False, make(tolerance, limit)
    for precision in ("single", "half"):
        emulated = precision == "half" and make is normal_cg
        inner = "single" if emulated else precision
        for delta in DELTAS:
            yield f"{precision}, reliable {delta:g}", emulated, make(tolerance, limit, inner, delta)
        for delta in DELTAS:
            correction = make(delta, limit, "half" if inner == "half" else None)
            yield f"{precision}, defect {delta:g}", emulated, DefectCorrection(correction, tolerance, limit)


def iterations(solver: Solver, A: LinearOperator, b: Array, emulated: bool) -> int | str:
    """Iterations of one solve, or how it failed."""
    return counted(solver.solve(HalfInside(A) if emulated else A, b, on_failure="return"))


def counted(solution: Solution) -> int | str:
    """Iterations, or how the solve failed."""
    converged = solution.status is SolveStatus.CONVERGED
    return solution.iterations if converged else solution.status.name.lower()
