"""Precisions of staggered solves in parameter files: half is for batched CG."""

from __future__ import annotations

from collections.abc import Iterator

from stages.lqcd.solvers.named import PRECISIONS, WHOLE_PRECISIONS, precision_for
from workflows.shared.sections import Problem


def precisions_of(solver: str) -> tuple[str, ...]:
    """Precisions in which a solver, or one that auto tries, iterates; each takes less room than the last."""
    half = solver == "auto" or precision_for(solver, "double-half") == "double-half"
    return tuple(PRECISIONS) if half else WHOLE_PRECISIONS


def precision_faults(solver: str, precision: str) -> Iterator[Problem]:
    """The problem with a precision that the solver does not have."""
    if precision not in precisions_of(solver):
        yield (
            ("solves", "precision"),
            f"{precision} is for batched_cg, not for {solver}: take that solver, or double-single",
        )
