"""Results of the configurations that are complete, of a workflow of which chunks are missing.

They are results of the same workflow on fewer configurations, as a file that excludes the others would have
them. The key of an average names what it is of, so that one of five configurations is never taken for that of
six: once those are there, the same command computes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pipeline import Chunk, Plan, Section, Store, Table
from pipeline import plan as make_plan
from pipeline.declare.coordinates import describe_values
from workflows.shared.definition import Project

CONFIG = "config"

NAMED = 8
"""Configurations of which chunks are missing, in a table."""


@dataclass(frozen=True)
class Part:
    """A project with all its results, or with those of the configurations that are complete."""

    project: Project
    """The whole one, or the same on complete configurations."""
    plan: Plan
    """Averages that it lacks and that can be made of what is there."""
    whole: Plan
    """Of the whole project."""

    def mark(self, store: Store) -> str:
        """`5 of 6 configurations, without levels`; '' where everything is there."""
        chunks = self.plan.chunks
        stored = {stage: store.keys(stage) for stage in {chunk.node.stage.name for chunk in chunks}}
        lacking = dict.fromkeys(c.node.name for c in chunks if c.key not in stored[c.node.stage.name])
        parts = [self.project.mark, f"without {', '.join(lacking)}" if lacking else ""]
        return ", ".join(filter(None, parts))

    def sections(self) -> Iterator[Section]:
        """A section on what is missing of the whole project, if anything is."""
        if not self.whole.missing:
            return
        rows = [
            [node.name, len(missing), _shortened(_labels(missing))]
            for node, chunks in groupby(self.whole.chunks, key=lambda chunk: chunk.node)
            if (missing := [chunk for chunk in chunks if chunk.key in self.whole.reasons])
        ]
        text = (
            "These chunks failed, or are not computed yet. This page is of the configurations of which "
            "nothing is missing. `quarkline run` computes the rest, and then what is on this page again."
        )
        table = Table(["node", "chunks missing", "of configurations"], rows)
        yield Section("What is missing", text, [table])


def complete_part(project: Project, whole: Plan, store: Store) -> Part | None:
    """The part of a project that is complete; None where no configuration is.

    whole: the project's plan, as the store is now.
    """
    if not whole.missing:
        return Part(project, whole, whole)
    labels = complete_labels(whole)
    if not labels or project.chooses_solver:  # a round that has no results
        return None
    if len(labels) == len(_labels(whole.chunks)):
        return Part(project, whole.again(averages(whole)), whole)
    part = project.among(labels)
    plan = make_plan(part.workflow, store, backend=whole.backend)
    return Part(part, plan.again(averages(plan)), whole)


def complete_labels(plan: Plan) -> list[str]:
    """Configurations without a missing chunk, in order.

    Nodes that are complete on no configuration count for nothing: they cannot be shown at all.
    """
    labels: dict[str, None] = {}
    incomplete: set[str] = set()
    for node, group in groupby(plan.chunks, key=lambda chunk: chunk.node):
        if CONFIG in node.over:
            missing = set(_labels([chunk for chunk in group if chunk.key in plan.reasons]))
            own = dict.fromkeys(map(str, node.over[CONFIG]))
            if missing != own.keys():
                labels |= own
                incomplete |= missing
    return [label for label in labels if label not in incomplete]


def averages(plan: Plan) -> set[str]:
    """Keys of missing chunks of all configurations whose inputs are there, or can be made likewise."""
    lacking = {chunk.key for chunk in plan.missing}
    possible: set[str] = set()
    for chunk in plan.missing:  # upstream before downstream
        if CONFIG not in chunk.coordinates and lacking.isdisjoint(source.key for source in chunk.stored()):
            possible.add(chunk.key)
            lacking.remove(chunk.key)
    return possible


def _shortened(labels: list[str]) -> str | None:
    """The first labels, and how many more; None for a node of all configurations."""
    named = describe_values(labels[:NAMED])
    return (f"{named} and {len(labels) - NAMED} more" if len(labels) > NAMED else named) or None


def _labels(chunks: Sequence[Chunk]) -> list[str]:
    """Configurations of chunks, in order."""
    return list(dict.fromkeys(str(label) for chunk in chunks for label in chunk.coordinates.get(CONFIG, ())))
