"""The solvers and precisions that parameter files name, and how a measurement solves its systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stages.base.errors import InputError
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.frame import MAX_ITERATIONS
from stages.lqcd.solvers.frame import PRECISIONS as PRECISIONS
from stages.lqcd.solvers.gcr import CYCLE_RESTART, GCR, RESTART, MultigridGCR, Preconditioner
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.solvers.solution import Solver

WHOLE_PRECISIONS = PRECISIONS[:-1]
"""Those of solvers that do not iterate in half."""

MULTIGRID = "multigrid"

CYCLE = 2.1
"""Blocks of right-hand sides in double that a replayed cycle of multigrid keeps: what goes in and comes out,
three fields in 16 bits and what is left of that of its defect; counted from the arrays.
"""

HALF_DIRECTION = 2 * 52 / 192
"""Blocks in double of z and w of one direction of GCR in 16 bits with a scale."""


@dataclass(frozen=True)
class Workspace:
    """Blocks of right-hand sides alive at a time, in double precision, b among them.

    host: with temporaries of array expressions. double, mixed: of a GPU's pool, without and with single
    precision inside; half: with 16 bits, where that takes less. What they are made of is in
    docs/notes/gpu_memory.md.
    """

    host: float
    double: float
    mixed: float
    half: float | None = None

    @classmethod
    def of_gcr(cls, restart: int, preconditioner: float = 0.0) -> Workspace:
        """GCR(restart), two fields each direction, and of its preconditioner."""
        rest = 5.7 + preconditioner
        double, half = 6.2 + 2 * restart + preconditioner, rest + HALF_DIRECTION * restart
        return cls(8 + restart, double, rest + restart, half)

    @classmethod
    def largest(cls, spaces: Sequence[Workspace]) -> Workspace:
        """Room for any of some."""
        device = (max(space.on_device(each) for space in spaces) for each in PRECISIONS)
        return cls(max(space.host for space in spaces), *device)

    def on_device(self, precision: str) -> float:
        """Blocks on a GPU in 'double', 'double-single' or 'double-half'."""
        if precision == "double":
            return self.double
        return self.mixed if precision == "double-single" or self.half is None else self.half

    def on_host(self, precision: str) -> float:
        """Blocks on the host."""
        return max(self.host, self.on_device(precision))


@dataclass(frozen=True)
class Named:
    """A solver of tolerance, max_iterations and precision; whether it iterates in half; its memory."""

    make: Callable[..., Any]
    halves: bool
    workspace: Workspace


CG = Workspace(host=10, double=9.2, mixed=7.6)
"""Conjugate gradients, batched or as one block; on a GPU measured at 24^4, N = 16 and 32: 8.6 to 8.8 and 7.4
to 8.6.
"""

NORMAL = Workspace(host=12, double=10.2, mixed=8.6)

POSITIVE = {"block_cgrq": Named(BlockCGrQ, False, CG), "batched_cg": Named(BatchedCG, True, CG)}
"""Solvers of Hermitian positive definite systems, such as the staggered 4 m^2 - D^2."""

REGULAR = {
    MULTIGRID: Named(MultigridGCR, True, Workspace.of_gcr(CYCLE_RESTART, CYCLE)),
    "bicgstab": Named(BiCGstab, True, Workspace(host=12, double=11.2, mixed=7.9)),
    "cgnr": Named(lambda *settings: NormalEquations(BatchedCG(*settings)), True, NORMAL),
    "block_cgrq": Named(lambda *settings: NormalEquations(BlockCGrQ(*settings)), False, NORMAL),
    "gcr": Named(GCR, True, Workspace.of_gcr(RESTART)),
}
"""Solvers of other systems, such as the even-odd ones of Wilson quarks: GCR(7) preconditioned by a hierarchy,
BiCGstab, conjugate gradients on the normal equations, batched or as one block, and GCR(10) alone.
"""

HALVES = tuple(name for table in (POSITIVE, REGULAR) for name, solver in table.items() if solver.halves)
"""Solvers that iterate in half: batched CG of staggered quarks, the others of Wilson quarks."""


def workspace_of(solver: str, table: Mapping[str, Named]) -> Workspace:
    """Workspace of a solver of `POSITIVE` or `REGULAR`; of a name in neither, as auto, of any of them."""
    chosen = [table[solver]] if solver in table else table.values()
    return Workspace.largest([each.workspace for each in chosen])


@dataclass(frozen=True)
class Solve:
    """Solution of linear systems by a named solver in blocks.

    solver: a name of `POSITIVE` or `REGULAR`. tolerance: of |b - A x| / |b|, every right-hand side.
    precision: 'double', 'double-single' or 'double-half' (single or half inside, residuals in double; half
    with `HALVES` only). max_iterations: of a block.
    block: right-hand sides that are solved together.
    """

    solver: str
    tolerance: float
    precision: str = "double-single"
    max_iterations: int = MAX_ITERATIONS
    block: int = 16

    def of_positive(self) -> KrylovSolver:
        """The solver of Hermitian positive definite systems. Raises InputError."""
        return self._maker(POSITIVE, PRECISIONS)()

    def of_regular(self, preconditioner: Preconditioner | None = None) -> Solver:
        """The solver of other systems; preconditioner: the hierarchy of 'multigrid'. Raises InputError."""
        make = self._maker(REGULAR, PRECISIONS if self.solver in HALVES else WHOLE_PRECISIONS)
        if self.solver != MULTIGRID:
            return make()
        if preconditioner is None:
            raise InputError("multigrid needs a hierarchy: give one, or name another solver")
        return make(preconditioner=preconditioner)

    def _maker(self, table: Mapping[str, Named], precisions: tuple[str, ...]) -> Callable[..., Any]:
        for kind, value, known in (("solver", self.solver, table), ("precision", self.precision, precisions)):
            if value not in known:
                raise InputError(f"{kind} must be one of {', '.join(known)}, got {value!r}")
        return partial(table[self.solver].make, self.tolerance, self.max_iterations, self.precision)
