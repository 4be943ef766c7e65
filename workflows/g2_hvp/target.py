"""A target for a_mu: from one round's budget to the next one's noise vectors and walls, or why not.

The error of a round has a part that noise reduces, one that configurations reduce, and one that neither does
(scale, Z_V, tails, stated inputs). What the target leaves to noise is allotted at least cost, by the measured
variances and seconds of both kinds, as if variances fell like 1/N.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, hypot, sqrt

import numpy as np

from pipeline import Plan, Record, Store, duration_text
from stages.hvp.contribution import KINDS, HvpContribution
from stages.lqcd.analysis.allocation import GROWTH, Limits, VarianceModel, least_cost
from workflows import Project, Step, variants
from workflows.g2_hvp.schema import HvpParameters

FIXED_SHARE = 0.9
"""Of what a target leaves to statistics, the most that gauge noise may take; more takes configurations."""


@dataclass(frozen=True)
class Kind:
    """Noise of one kind: how many per configuration, its variance of a_mu now, its seconds per one."""

    words: str
    count: int
    chunk: int
    most: int
    variance: float
    seconds: float


def next_round(project: Project[HvpParameters], plan: Plan, store: Store) -> Step:
    """Next step after a round's results, in relative errors only: the numbers may be blinded."""
    target = project.parameters.target
    assert target is not None
    (chunk,) = (each for each in plan.chunks if each.node.name == "a_mu")
    result = HvpContribution(**store.load(chunk.node.stage.name, chunk.key))
    names = [str(name) for name in chunk.node.parameters["shown"]]
    rows = [str(row) for row in chunk.node.parameters["budget_rows"]]
    window = project.parameters.analysis.windows.index(target.a_mu.window)
    value = abs(float(result.budget[window, rows.index("total")])) or 1.0
    errors = dict(zip(rows, result.budget_error[window] / value, strict=True))
    fixed = hypot(*(e for row, e in errors.items() if row not in (*names, "statistical", "total") and e == e))
    noise = dict(zip(KINDS, np.nan_to_num(result.noise[window]) / value, strict=True))
    asked, statistical = target.a_mu.relative, float(errors["statistical"])
    error, reached = hypot(fixed, statistical), target.a_mu.window
    text = f"a_mu [{reached}]: error {_percent(error)}, target {_percent(asked)}"
    if error <= asked:
        return Step(f"{text}: target met", met=True)
    if fixed >= asked:
        return Step(f"{text}: not to be met, what is not statistical is {_percent(fixed)}", met=False)
    left = asked**2 - fixed**2
    gauge = max(statistical**2 - sum(each**2 for each in noise.values()), 0.0)
    count = len(project.ensemble.labels)
    if gauge > FIXED_SHARE * left:
        wanted = ceil(count * gauge / (FIXED_SHARE * left))
        return Step(f"{text}: it takes {wanted} configurations instead of {count}: add them", met=False)
    now = list(kinds(project.parameters, plan, store, noise))
    counts = allotted(now, sqrt(left - gauge))
    if all(new == kind.count for new, kind in zip(counts, now, strict=True)):
        return Step(f"{text}: not met within `target.most_vectors` and `target.most_walls`", met=False)
    more = ", ".join(f"{new} {kind.words}" for new, kind in zip(counts, now, strict=True))
    work = sum((new - kind.count) * kind.seconds for new, kind in zip(counts, now, strict=True))
    following = _with_counts(project.parameters, dict(zip((k.words for k in now), counts, strict=True)))
    return Step(
        f"{text}: next {more} per configuration, after {duration_text(work * count)} of work",
        met=False,
        project=replace(project, parameters=following),
    )


def allotted(kinds: list[Kind], error: float) -> list[int]:
    """Counts for an error at least cost, of at most `GROWTH` times those at hand."""
    shares = [kind.variance * kind.count / kind.seconds for kind in kinds]
    order = sorted(range(len(kinds)), key=lambda k: -shares[k])
    sorted_kinds = [kinds[k] for k in order]  # as the allocator takes them: the largest count first
    linear = np.diag([kind.variance * kind.count for kind in sorted_kinds])
    model = VarianceModel(linear, np.zeros((len(kinds),) * 4))
    step = int(np.lcm.reduce([kind.chunk for kind in kinds]))
    least = tuple(step for _ in kinds)
    limits = Limits(least, (10**9 - 10**9 % step,) * len(kinds), step)
    wanted = least_cost(model, [kind.seconds for kind in sorted_kinds], error, limits).counts
    counts = [0] * len(kinds)
    for place, number in zip(order, wanted, strict=True):
        kind = kinds[place]
        bounded = min(max(number, kind.count), GROWTH * kind.count, kind.most - kind.most % kind.chunk)
        counts[place] = max(kind.count, bounded - bounded % kind.chunk)
    return counts


def kinds(parameters: HvpParameters, plan: Plan, store: Store, noise: dict[str, float]) -> Iterator[Kind]:
    """Walls, and noise vectors if there are any, with their errors `noise` of a_mu."""
    target, walls = parameters.target, parameters.connected.noise
    assert target is not None
    counted = [(walls.walls, walls.chunk, target.most_walls, "source")]
    if section := parameters.disconnected:
        counted.append((section.noise.vectors, section.noise.chunk, target.most_vectors, "noise"))
    for (kind, error), (count, chunk, most, dim) in zip(noise.items(), counted, strict=False):
        yield Kind(kind, count, chunk, most, error**2, _seconds(plan, store, dim) / count)


def _seconds(plan: Plan, store: Store, dim: str) -> float:
    """Seconds per configuration of what is mapped over a dimension, by the fastest chunk of each node."""
    seconds: dict[str, list[float]] = {}
    for chunk in plan.chunks:
        if dim in chunk.node.over:
            record = Record.of(store.record(chunk.node.stage.name, chunk.key))
            seconds.setdefault(chunk.node.name, []).append(record.seconds)
    of_nodes = {chunk.node.name: chunk.node for chunk in plan.chunks}
    return sum(min(s) * len(s) / len(of_nodes[name].over["config"]) for name, s in seconds.items()) or 1e-3


def _with_counts(parameters: HvpParameters, counts: dict[str, int]) -> HvpParameters:
    for name, count in counts.items():
        key = "connected.noise.walls" if name == KINDS[0] else "disconnected.noise.vectors"
        parameters = variants.changed(parameters, key, count)
    return parameters


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"
