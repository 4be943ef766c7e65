"""The solvers that a parameter file names for Wilson-type systems."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stages.dirac.operator import LinearOperator, Product
from stages.kernels.dispatch import Array, Kernels, kernels_for, to_host
from stages.lattice.errors import InputError
from stages.solvers.block_cgrq import BlockCGrQ
from stages.solvers.cg import BatchedCG
from stages.solvers.gcr import GCR
from stages.solvers.krylov import KrylovSolver
from stages.solvers.reliable import Progress
from stages.solvers.solution import NotConverged, Solution, Status
from stages.spectroscopy.even_odd import EvenOdd, Method

PRECISIONS = {"double": None, "double-single": "single"}
"""Name in a parameter file: precision inside the solver. Residuals are in double."""
SOLVERS = ("cgnr", "block_cgrq", "gcr")
"""Conjugate gradients on the normal equations, batched or as one block, and GCR(10)."""


@dataclass(frozen=True)
class NormalEquations:
    """A^H A x = A^H b by a method for positive definite operators, until |b - A x| reaches the tolerance.

    The residual of the normal equations bounds that of A by the condition number only: where it was not
    enough, the solve goes on from its x with a smaller one.
    """

    cg: KrylovSolver

    def solve(
        self,
        A: LinearOperator,
        b: Array,
        x0: Array | None = None,
        on_failure: str = "raise",
        progress: Progress | None = None,
    ) -> Solution:
        """x of A x = b ``[*A.shape, N]``; raises NotConverged unless on_failure is 'return'."""
        tolerance, left = self.cg.tolerance, self.cg.max_iterations
        normal, target = Product(A.adjoint, A), A.adjoint.apply(b)
        found, x, cg = [], x0, self.cg
        while True:
            cg = replace(cg, max_iterations=left)
            found.append(cg.solve(normal, target, x, on_failure="return", progress=progress))
            x, left = found[-1].x, left - found[-1].iterations
            residual = _residual(A, x, b)
            worst = float(np.max(residual / tolerance, initial=0.0))
            if worst <= 1 or found[-1].status is not Status.CONVERGED or left < 1:
                break
            cg = replace(cg, tolerance=0.5 * cg.tolerance / worst)
        status = Status.CONVERGED if worst <= 1 else _missed(found[-1].status)
        solution = Solution(
            x,
            status,
            sum(each.iterations for each in found),
            residual,
            np.concatenate([each.history for each in found]),
            2 * sum(each.matvecs for each in found),
            sum(each.seconds for each in found),
        )
        if status is not Status.CONVERGED and on_failure == "raise":
            raise NotConverged(solution, tolerance)
        return solution


def _missed(status: Status) -> Status:
    return Status.ITERATION_LIMIT if status is Status.CONVERGED else status


def _residual(A: LinearOperator, x: Array, b: Array) -> np.ndarray:
    """|b - A x| / |b| of each column, on the host."""
    norms2 = kernels_for(b).block_blas.norms2
    missed, source = np.sqrt(to_host(norms2(b - A.apply(x)))), np.sqrt(to_host(norms2(b)))
    return missed / np.where(source > 0, source, 1)


def make_method(
    name: str, precision: str, tolerance: float, max_iterations: int, kernels: Kernels | None = None
) -> Method:
    """The method that a parameter file names; kernels: by default those of the fields. Raises InputError."""
    for kind, value, known in (("solver", name, SOLVERS), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise InputError(f"{kind} must be one of {', '.join(known)}, got {value!r}")
    settings = (tolerance, max_iterations, PRECISIONS[precision], kernels)
    if name == "gcr":
        return EvenOdd(GCR(*settings))
    return EvenOdd(NormalEquations((BlockCGrQ if name == "block_cgrq" else BatchedCG)(*settings)))
