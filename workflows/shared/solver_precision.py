"""Precisions of solves in parameter files: half is for some solvers."""

from __future__ import annotations

from collections.abc import Iterator

from stages.lqcd.solvers.named import HALVES, POSITIVE, PRECISIONS, WHOLE_PRECISIONS
from workflows.shared.sections import Problem


def precisions_of(solver: str) -> tuple[str, ...]:
    """Precisions in which a solver, or one that auto tries, iterates; none takes more room than the last."""
    return tuple(PRECISIONS) if solver in ("auto", *HALVES) else WHOLE_PRECISIONS


def precision_faults(solver: str, precision: str, staggered: bool) -> Iterator[Problem]:
    """The problem with a precision that the solver of staggered or of Wilson quarks does not have."""
    if precision not in precisions_of(solver):
        *others, last = (name for name in HALVES if (name in POSITIVE) == staggered)
        names, taken = (f"{', '.join(others)} and {last}", "one of them") if others else (last, "that solver")
        yield (
            ("solves", "precision"),
            f"{precision} is for {names}, not for {solver}: take {taken}, or double-single",
        )
