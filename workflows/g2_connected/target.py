"""A target of connected correlators: from the walls of one round to the number of the next one's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from statistics import median

import numpy as np

from pipeline import At, Plan, Record, Store
from stages.connected.correlator import linear_in_c, wall_moments
from stages.connected.walls import WallCorrelators
from stages.lqcd.analysis.allocation import VarianceModel, next_counts
from workflows import Project, Step, variants
from workflows.g2_connected.schema import ConnectedParameters


def next_round(project: Project[ConnectedParameters], plan: Plan, store: Store) -> Step:
    """The target is met, or the walls of the next round, or it is beyond the limits."""
    parameters, target = project.parameters, project.parameters.target
    assert target is not None
    ends = ("", "_fine")[: 1 + bool(parameters.solves.fine)]
    results = [_walls(plan, store, f"walls_{target.quark}{end}") for end in ends]
    of_configs = [
        wall_moments([each[config] for each in results], parameters.operators, target.current)
        for config in results[0]
    ]
    times = slice(target.window[0], target.window[1] + 1)
    linear = np.mean([each.linear[..., times].mean(axis=-1) for each in of_configs], axis=0)
    model = VarianceModel(linear, np.zeros((len(ends),) * 4))
    counts = tuple(sum(len(at["source"]) for at, _ in next(iter(each.values()))) for each in results)
    error, width = sqrt(model.variance(counts)), parameters.noise.chunk
    said = f"{_words(counts)}: error {float(linear_in_c(np.array(error))):.2e}, target {target.error:.2e}"
    if error <= target.error:
        return Step(f"{said}: target met", met=True)
    costs = [sum(_seconds(plan, store, f"walls_{quark}{end}") for quark in parameters.quarks) for end in ends]
    most = max(target.most_walls, counts[0])
    wanted = next_counts(model, costs, target.error, counts, len(of_configs), most, width)
    if wanted.counts == counts:
        limit = f"`target.most_walls` = {target.most_walls}"
        return Step(f"{said}: target not met within {limit}; raise it and run again", met=False)
    following = replace(project, parameters=with_walls(parameters, wanted.counts))
    more = f"next {_words(wanted.counts)}, predicted error {float(linear_in_c(np.array(wanted.error))):.2e}"
    return Step(f"{said}: {more}", met=False, project=following)


def with_walls(parameters: ConnectedParameters, counts: Sequence[int]) -> ConnectedParameters:
    """Parameters with these numbers of walls, and of fine ones."""
    more = variants.changed(parameters, "noise.walls", counts[0])
    return variants.changed(more, "solves.fine.walls", counts[1]) if counts[1:] else more


def _walls(plan: Plan, store: Store, name: str) -> dict[str, list[tuple[At, WallCorrelators]]]:
    """Results of a node of a complete plan, by configuration."""
    found: dict[str, list[tuple[At, WallCorrelators]]] = {}
    for chunk in plan.chunks:
        if chunk.node.name == name:
            result = WallCorrelators(**store.load(chunk.node.stage.name, chunk.key))
            at = At(chunk.coordinates)
            found.setdefault(str(at.one("config")), []).append((at, result))
    return found


def _seconds(plan: Plan, store: Store, name: str) -> float:
    """Of one wall of a node; the median, which a first compilation cannot shift."""
    chunks = [chunk for chunk in plan.chunks if chunk.node.name == name]
    records = (Record.of(store.record(chunk.node.stage.name, chunk.key)) for chunk in chunks)
    return median(record.seconds / len(record.coordinates["source"]) for record in records)


def _words(counts: Sequence[int]) -> str:
    walls, *fine = counts
    return f"{walls} walls" + "".join(f", {count} fine" for count in fine)
