"""The solvers and precisions that parameter files name, and how a measurement solves its systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import Solver
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.gcr import GCR, MultigridGCR, Preconditioner
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.solvers.reliable_solver import MAX_ITERATIONS
from stages.lqcd.solvers.workspace import Workspace

PRECISIONS = {"double": None, "double-single": "single", "double-half": "half"}
"""Precision inside the solver, by name; residuals are in double."""

MULTIGRID = "multigrid"
HALVES = ("batched_cg", MULTIGRID, "bicgstab", "cgnr", "gcr")
"""Solvers that iterate in half: the first one of staggered quarks, the others of Wilson quarks."""

WHOLE_PRECISIONS = tuple(name for name in PRECISIONS if name != "double-half")
"""Those of the others."""

POSITIVE: dict[str, type[KrylovSolver]] = {"block_cgrq": BlockCGrQ, "batched_cg": BatchedCG}
"""Of Hermitian positive definite systems, such as the staggered 4 m^2 - D^2."""

REGULAR: dict[str, Callable[..., Solver]] = {
    MULTIGRID: MultigridGCR,
    "bicgstab": BiCGstab,
    "cgnr": lambda *settings: NormalEquations(BatchedCG(*settings)),
    "block_cgrq": lambda *settings: NormalEquations(BlockCGrQ(*settings)),
    "gcr": GCR,
}
"""Of other systems, such as the even-odd ones of Wilson quarks: GCR(7) preconditioned by a hierarchy,
BiCGstab, conjugate gradients on the normal equations, batched or as one block, and GCR(10) alone.
"""


def workspace_of(solver: str, table: Mapping[str, Callable[..., Any]]) -> Workspace:
    """Workspace of a solver of `POSITIVE` or `REGULAR`; of a name in neither, as auto, of any of them."""
    makers = [table[solver]] if solver in table else table.values()
    return Workspace.largest([make(1e-8, 1, None).workspace for make in makers])


@dataclass(frozen=True)
class Solve:
    """Solution of linear systems by a named solver in blocks.

    solver: a name of `POSITIVE` or `REGULAR`. tolerance: of |b - A x| / |b|, every right-hand side.
    precision: 'double', 'double-single' or 'double-half' (single or half inside, residuals in double; half
    with `HALVES` alone). max_iterations: of a block.
    block: right-hand sides that are solved together.
    """

    solver: str
    tolerance: float
    precision: str = "double-single"
    max_iterations: int = MAX_ITERATIONS
    block: int = 16

    def of_positive(self) -> KrylovSolver:
        """The solver of Hermitian positive definite systems. Raises InputError."""
        return self._named(POSITIVE, tuple(PRECISIONS))(*self._settings())

    def of_regular(self, preconditioner: Preconditioner | None = None) -> Solver:
        """The solver of other systems; preconditioner: the hierarchy of 'multigrid'. Raises InputError."""
        make = self._named(REGULAR, tuple(PRECISIONS) if self.solver in HALVES else WHOLE_PRECISIONS)
        if self.solver != MULTIGRID:
            return make(*self._settings())
        if preconditioner is None:
            raise InputError("multigrid needs a hierarchy: give one, or name another solver")
        return make(*self._settings(), preconditioner=preconditioner)

    def _named(self, table: dict[str, Any], precisions: tuple[str, ...]) -> Callable[..., Any]:
        for kind, value, known in (("solver", self.solver, table), ("precision", self.precision, precisions)):
            if value not in known:
                raise InputError(f"{kind} must be one of {', '.join(known)}, got {value!r}")
        return table[self.solver]

    def _settings(self) -> tuple[Any, ...]:
        return self.tolerance, self.max_iterations, PRECISIONS[self.precision]
