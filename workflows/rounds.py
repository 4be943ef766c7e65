"""Workflows that run in rounds: what a round found decides what the next one is, until a target is met.

Each round is an ordinary workflow, planned and run as any other; later ones want more of the same chunks, so
that nothing is computed twice. A decision is a function of what is in the store. So whoever starts from the
first round, however often and wherever the last run was killed, is led to the round that is not complete yet.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline import Outcome, Plan, Store
from pipeline import plan as make_plan
from workflows.shared.blinded_averages import refuse_mixed
from workflows.shared.definition import Project, Step
from workflows.shared.ensemble import refuse_copies

MOST_DAMAGED = 16
"""Configurations beyond the first that are looked at for trials of solvers."""


class Rounds:
    """The rounds of a project that a store has come through, in order, and the one that it is in."""

    projects: list[Project]
    """A project for each round."""
    steps: list[Step]
    """What the complete rounds led to."""
    plan: Plan
    """Of the last round."""

    def __init__(self, project: Project, store: Store, backend: str) -> None:
        self.store, self.backend = store, backend
        self.outcomes: list[Outcome] = []
        """Of the rounds that were run here."""
        self._visit(project)

    @property
    def project(self) -> Project:
        """The round that the store is in."""
        return self.projects[-1]

    @property
    def last_step(self) -> Step | None:
        """Step of the last round, to no other one; None while something is missing in it."""
        return self.steps[-1] if len(self.steps) == len(self.projects) else None

    @property
    def exit_status(self) -> int:
        """Exit status of the last outcome; 1 where all was computed and a target is not met."""
        missed = self.last_step is not None and not self.last_step.met
        return self.outcomes[-1].exit_status or int(missed)

    def drive(self, compute: Callable[[Plan], Outcome], tell: Callable[[str], None]) -> None:
        """Run round after round until nothing follows, or something is missing in the end.

        compute: runs a plan. tell: is told what follows from each round that is complete.
        """
        while True:
            for step in self.steps:
                tell(step.text)
            # a round that is there already is run, too: the results of a workflow are those of its last run
            if self.plan.missing or not self.outcomes or len(self.projects) > 1:
                self.outcomes.append(compute(self.plan))
            if other := self._beside_damaged_file():
                file = self.project.ensemble.files[self.project.trial_configuration]
                where = other.trial_configuration
                tell(f"{file} cannot be read: solvers are measured on {where} instead")
                self._visit(other)
            elif self.outcomes[-1].exit_status or self.last_step or not self.project.in_rounds:
                return
            else:
                self._visit(self.project)

    def _visit(self, project: Project) -> None:
        """Follow the steps from one round to the next, as far as the store has results."""
        self.projects, self.steps = [], []
        following: Project | None = project
        while following:
            following, self.plan = self._planned(following)
            refuse_copies(self.plan)
            refuse_mixed(self.plan, self.store)
            self.projects.append(following)
            if not following.in_rounds or self.plan.missing:
                return
            self.steps.append(following.step(self.plan, self.store))
            following = self.steps[-1].project

    def _planned(self, project: Project) -> tuple[Project, Plan]:
        """A round, its plan; one that chooses a solver, on the first configuration whose trials are there."""
        wanted = make_plan(project.workflow, self.store, backend=self.backend)
        each, planned = project, wanted
        for _ in range(MOST_DAMAGED):
            if not planned.missing or not (other := each.on_next_configuration()):
                break
            if not all(self.store.keys(name) for name in {c.node.stage.name for c in planned.missing}):
                break  # it has trials of no configuration at all
            each, planned = other, make_plan(other.workflow, self.store, backend=self.backend)
        return (project, wanted) if planned.missing else (each, planned)

    def _beside_damaged_file(self) -> Project | None:
        """The round on the next configuration, where all that failed is the file of this one."""
        outcome, project = self.outcomes[-1], self.project
        if not (other := project.on_next_configuration()) or not outcome.failures or outcome.stopped:
            return None
        file = str(project.ensemble.files[project.trial_configuration])
        return other if all(file in failure.error for failure in outcome.failures) else None
