"""Iterations of reliable updates and of defect correction, in single and in half, for several delta.

delta: the fall of a residual that asks for a true one, and the tolerance of a correction. In half fields have
16 bits (`stages.lqcd.kernels.short_numbers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.defect_correction import DefectCorrection
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.solvers.solution import Solution, Solver, SolveStatus

DELTAS = (0.1, 0.01, 0.001)
BEYOND = 1e-6
"""A fall that no correction reaches: its residual is not replaced on the way."""


def normal_cg(tolerance: float, limit: int, precision: str = "double", delta: float | None = None) -> Solver:
    """Batched conjugate gradients on the normal equations."""
    return NormalEquations(BatchedCG(tolerance, limit, precision, delta))


METHODS: dict[str, Any] = {"BiCGstab": BiCGstab, "CG": normal_cg}
"""Makers of solvers from tolerance, limit, precision and delta."""

NAMES = {"BiCGstab": "bicgstab", "CG": "cgnr"}
"""What parameter files call them."""


def columns(method: str, tolerance: float, limit: int) -> Iterator[tuple[str, Solver]]:
    """Name and solver of each column of a table."""
    make = METHODS[method]
    yield "double", make(tolerance, limit)
    for precision in ("double-single", "double-half"):
        for delta in DELTAS:
            yield f"{precision}, reliable {delta:g}", make(tolerance, limit, precision, delta)
        for delta in DELTAS:
            correction = make(delta, limit, "double-half" if precision == "double-half" else "double", BEYOND)
            yield f"{precision}, defect {delta:g}", DefectCorrection(correction, tolerance, limit)


def iterations(solver: Solver, A: LinearOperator, b: Array) -> int | str:
    """Iterations of one solve, or how it failed."""
    return counted(solver.solve(A, b, on_failure="return"))


def counted(solution: Solution) -> int | str:
    """Iterations, or how the solve failed."""
    converged = solution.status is SolveStatus.CONVERGED
    return solution.iterations if converged else solution.status.name.lower()
