"""Rehearsals for `certify --full`: what the nodes of a workflow ask of kernels, once and briefly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType

from pipeline import Node
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.trial import solves_of

Step = Callable[[], object]
"""A part of a rehearsal."""
Rehearsal = Callable[[Sequence[Node], ModuleType], Iterable[Step]]
"""The steps of those of the nodes that it knows, for arrays of a library; kernels depend on extents,
precisions and block widths, not on values."""

MASS = 2.0
"""Of rehearsed quarks."""
TOLERANCE = 1e-9
"""Reached in some twenty iterations, in several cycles where the inner precision is single."""


def rehearsed(
    rehearsals: Sequence[Rehearsal], nodes: Sequence[Node], xp: ModuleType
) -> Iterator[tuple[int, int]]:
    """Take all steps. Yields steps taken and steps in all."""
    steps = [step for rehearsal in rehearsals for step in rehearsal(nodes, xp)]
    for number, step in enumerate(steps, start=1):
        step()
        yield number, len(steps)


def unit_links(lattice: Lattice, xp: ModuleType) -> Array:
    """Free links ``[mu, parity, site, 3, 3]``."""
    return xp.tile(xp.eye(3, dtype=complex), (4, 2, lattice.half_volume, 1, 1))


def brief_solves(solve: Solve, solvers: Sequence[str], columns: int) -> list[Solve]:
    """Solves to `TOLERANCE` by each solver, in each precision, that solves of so many columns may get."""
    tried = dict.fromkeys((each.solver, each.precision) for each in solves_of(solve, solvers, columns))
    return [Solve(name, TOLERANCE, precision, solve.max_iterations) for name, precision in tried]


def nodes_of(nodes: Sequence[Node], *stages: Callable[..., object]) -> list[Node]:
    """Nodes of some stages."""
    return [node for node in nodes if node.stage.function in stages]
