"""Section of a parameter file on the solution of linear systems, by a named solver or the cheapest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from stages.ensemble.expected_solves import ExpectedSolves
from stages.lqcd.solvers.frame import MAX_ITERATIONS
from stages.lqcd.solvers.named import HALVES, POSITIVE, PRECISIONS, WHOLE_PRECISIONS, Solve
from stages.lqcd.solvers.trial import candidates, trial_widths
from workflows.parameter_file import FileSection, Problem
from workflows.shared.sections import Usual
from workflows.shared.variants import after, less


class SolverSection(FileSection):
    """Solution of the linear systems, `block` right-hand sides at a time."""

    solvers: ClassVar[Sequence[str]]
    """All solvers of such systems, which auto tries."""
    lighter: ClassVar[Mapping[str, Sequence[str]]]
    """By solver, others that take less memory."""

    solver: str
    """The method, or auto."""
    precision: Literal["double", "double-single", "double-half"] = "double-single"
    """Double throughout, or iterations in single or half with residuals recomputed in double."""
    if TYPE_CHECKING:  # each section has them after keys of its own, which is their order for people
        max_iterations: int
        block: int

    @property
    def precisions(self) -> tuple[str, ...]:
        """Precisions in which the solver, or one that auto tries, iterates; none is larger than the last."""
        return tuple(PRECISIONS) if self.solver in ("auto", *HALVES) else WHOLE_PRECISIONS

    @property
    def expected(self) -> ExpectedSolves:
        """Solver, precision and block that operators are made for."""
        return ExpectedSolves(self.solver, self.precision, self.block)

    def to(self, tolerance: float) -> Solve:
        """Solves to a tolerance, as stages take them."""
        return Solve(self.solver, tolerance, self.precision, self.max_iterations, self.block)

    def candidates(self, columns: int, deflated: Sequence[int] = (0,)) -> list[str]:
        """Names of what auto tries; columns: of a chunk, which blocks are of.

        A precision that the file leaves out is free: none is too coarse, as residuals are those of double.
        """
        free = "precision" not in self.model_fields_set
        precision = list(PRECISIONS)[-1] if free else self.precision
        widths = trial_widths(self.block, columns)
        return [str(each) for each in candidates(self.solvers, precision, widths, deflated)]

    def economies(self, chunks: Mapping[str, Sequence[int]]) -> dict[str, Sequence[object]]:
        """Other values that take less memory; chunks: those of keys that say what is solved together."""
        return {
            "solves.block": less(self.block),
            **chunks,
            "solves.solver": self.lighter.get(self.solver, ()),
            "solves.precision": after(self.precision, self.precisions),
        }

    def contradictions(self) -> Iterator[Problem]:
        """A precision that the solver does not have."""
        if self.precision not in self.precisions:
            *others, last = (name for name in HALVES if name in self.solvers)
            names, taken = last, "that solver"
            if others:
                names, taken = f"{', '.join(others)} and {last}", "one of them"
            yield (
                ("precision",),
                f"{self.precision} is for {names}, not for {self.solver}: take {taken}, or double-single",
            )


SLOPPY = Usual(1e-13, 0.1, "looser solutions are far from the propagator, and rounding prevents tighter ones")


class SloppySection(FileSection):
    """The solves of all noise vectors or walls."""

    tolerance: Annotated[float, SLOPPY] = Field(gt=0, lt=1)
    """|b - A x| / |b| of the solves of all noise vectors or walls."""


class PositiveSolves(SolverSection):
    """Solution of positive definite systems, such as the staggered 4 m^2 - D^2."""

    solvers: ClassVar = tuple(POSITIVE)
    lighter: ClassVar = {"block_cgrq": ("batched_cg",)}

    solver: Literal["auto", "block_cgrq", "batched_cg"] = "block_cgrq"
    """Conjugate gradients with one Krylov space for a block, or column by column; auto measures both on the
    first configuration and takes the cheapest."""
    precision: Literal["double", "double-single", "double-half"] = "double-single"
    """Double throughout, or iterations in single or half with residuals recomputed in double. Half is for
    batched_cg. With auto the coarsest that may be taken, finer ones are measured, too; left out, all are."""
    max_iterations: int = Field(default=MAX_ITERATIONS, ge=1)
    """A solve that has not converged by then fails."""
    block: int = Field(default=24, ge=1, le=64)
    """Right-hand sides that are solved together; with auto wider and narrower blocks are measured, too."""
