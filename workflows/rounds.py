"""Workflows that run in rounds: what a round found decides what the next one is, until a target is met.

Each round is an ordinary workflow, planned and run as any other; later ones want more of the same chunks, so
that nothing is computed twice. A decision is a function of what is in the store. So whoever starts from the
first round, however often and wherever the last run was killed, is led to the round that is not complete yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline import plan as make_plan
from workflows.shared.ensemble import refuse_copies

if TYPE_CHECKING:
    from pipeline import Outcome, Plan, Store
    from workflows.shared.definition import Elsewhere, Project, Step


MOST_DAMAGED = 16
"""Configurations beyond the first that are looked at for trials of solvers."""


@dataclass(frozen=True)
class Round:
    """A project as one round has it, its plan, and what follows from its results once they are there."""

    project: Project
    plan: Plan
    step: Step | None
    """None while something is missing, and for projects that have one round only."""


def visited(project: Project, store: Store, backend: str) -> Iterator[Round]:
    """The rounds that a store has come through, in order, and the one that it is in."""
    following: Project | None = project
    while following:
        following, planned = _measured(following, store, backend)
        refuse_copies(planned)
        complete = following.follow is not None and not planned.missing
        step = following.follow(planned, store) if following.follow and complete else None
        yield Round(following, planned, step)
        following = step.project if step else None


def _measured(project: Project, store: Store, backend: str) -> tuple[Project, Plan]:
    """A round and its plan; one that chooses a solver, on the first configuration whose trials are there."""
    wanted = make_plan(project.workflow, store, backend=backend)
    each, planned = project, wanted
    for _ in range(MOST_DAMAGED):
        if not each.elsewhere or not planned.missing:
            break
        if not all(store.keys(stage) for stage in {chunk.node.stage.name for chunk in planned.missing}):
            break  # it has trials of no configuration at all
        each = each.elsewhere.project()
        planned = make_plan(each.workflow, store, backend=backend)
    return (project, wanted) if planned.missing else (each, planned)


def _elsewhere(project: Project, outcome: Outcome) -> Elsewhere | None:
    """Place of the round instead, where all that failed is the file of its configuration."""
    place = project.elsewhere
    if not place or not outcome.failures or outcome.stopped:
        return None
    return place if all(str(place.file) in failure.error for failure in outcome.failures) else None


@dataclass(frozen=True)
class Driven:
    """Outcome of a run of several rounds: the round that it ended in, and each round's outcome."""

    last: Round
    outcomes: tuple[Outcome, ...]

    @property
    def exit_status(self) -> int:
        """Exit status of the last outcome; 1 where all was computed and a target is not met."""
        missed = self.last.step is not None and not self.last.step.met
        return self.outcomes[-1].exit_status or int(missed)


def drive(
    project: Project,
    store: Store,
    backend: str,
    compute: Callable[[Plan], Outcome],
    tell: Callable[[str], None],
) -> Driven:
    """Run round after round until nothing follows, or something is missing in the end.

    compute: runs a plan. tell: is told what follows from each round that is complete.
    """
    outcomes: list[Outcome] = []
    while True:
        past = list(visited(project, store, backend))
        for each in past:
            if each.step:
                tell(each.step.text)
        last = past[-1]
        # a round that is there already is run, too: the results of a workflow are those of its last run
        if last.plan.missing or not outcomes or len(past) > 1:
            outcomes.append(compute(last.plan))
        if place := _elsewhere(last.project, outcomes[-1]):
            tell(f"{place.file} cannot be read: solvers are measured on {place.next} instead")
            project = place.project()
            continue
        if outcomes[-1].exit_status or last.step or not last.project.follow:
            return Driven(last, tuple(outcomes))
        project = last.project
