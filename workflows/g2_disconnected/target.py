"""A target of the disconnected current: its nodes, and from one round's results to the next one's counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pipeline import Chunk, Node, Plan, Record, Store, duration_text
from stages.loops.noise_allocation import TraceAllocation, model_of
from stages.lqcd.analysis.allocation import UNLIMITED, Allocation, Counts, Limits, least_cost, next_counts
from workflows import Project, Step
from workflows.g2_disconnected.schema import G2Parameters, with_vectors

NOISE, ALLOCATION = "noise", "allocation"
"""Nodes of a target's estimator with all eigenvectors; `suffix` ends the names of those with fewer."""


def suffix(eigenvectors: int | None) -> str:
    """End of the names of the nodes that measure the estimator with so many eigenvectors; None: all."""
    return "" if eigenvectors is None else f"_{eigenvectors}"


@dataclass(frozen=True)
class Decision:
    """Findings of a round, and its expectations of the next one; kept with the next round's results."""

    vectors: Counts
    error: float
    seconds: float
    """Of work for all loops so far."""
    seconds_per_vector: tuple[float, ...]
    """Of each piece, on one configuration."""
    next_vectors: Counts
    predicted_error: float
    predicted_seconds: float
    eigenvectors: int | None = None
    """How many of the deflation space's are used from here on; None: all."""


def next_round(project: Project[G2Parameters], plan: Plan, store: Store) -> Step:
    """Next step after a round's results: the target is met, or more vectors, or it is beyond the limits.

    All configurations get the same counts, by their mean variance: a result has a value for every
    configuration and noise vector.
    """
    parameters, earlier = project.parameters, project.decisions
    target = parameters.target
    assert target is not None
    result = allocation_of(plan, store)
    model, counts = model_of(result)
    error, asked = float(result.error[-1]), float(result.asked)
    text = f"round {len(earlier) + 1}, {_vectors(counts)}: {achieved(target.stochastic_to_gauge, result)}"
    if error <= asked:
        return Step(f"{text}: target met", met=True)
    configurations, best = len(_chunks(plan, NOISE)), None
    if not earlier and target.eigenvectors:
        best = _cheapest(plan, store, [None, *target.eigenvectors], asked or error / 2)
        model, _ = model_of(allocation_of(plan, store, best))
    costs = _costs(plan, store, best)
    wanted = next_counts(
        model, costs, asked, counts, configurations, target.most_vectors, parameters.noise.chunk
    )
    if wanted.counts == counts:
        limit = f"`target.most_vectors` = {target.most_vectors}"
        return Step(f"{text}: target not met within {limit}; raise it and run again", met=False)
    used = best or used_after(earlier)
    decision = _decision(plan, store, counts, error, costs, wanted, best, used)
    with_modes = f" with {used} eigenvectors" if used else ""
    more = f"next {_vectors(wanted.counts)}{with_modes}, predicted error {decision.predicted_error:.2e}"
    work = duration_text(decision.predicted_seconds - decision.seconds)
    following = replace(
        project, parameters=with_vectors(parameters, wanted.counts), decisions=(*earlier, decision)
    )
    return Step(f"{text}: {more} after {work} of work", met=False, project=following)


def achieved(ratio: float | None, result: TraceAllocation) -> str:
    """The error that was reached, beside the one asked for; `ratio`: of the two where gauge noise sets it."""
    error, asked, gauge = float(result.error[-1]), float(result.asked), float(result.gauge)
    if ratio is None:
        return f"error {error:.2e}, target {asked:.2e}"
    if not gauge:
        return f"error {error:.2e}, which hides the gauge noise"
    return f"{error / gauge:.2f} of the gauge noise, target {ratio:g}"


def used_after(earlier: Sequence[Decision]) -> int | None:
    """Eigenvectors in use after the decisions of `earlier` rounds; None: all."""
    return earlier[-1].eigenvectors if earlier else None


def _cheapest(plan: Plan, store: Store, tried: Sequence[int | None], error: float) -> int | None:
    """The number of eigenvectors with which a pilot's estimator reaches an error at least cost."""
    costs = {}
    for eigenvectors in tried:
        model, counts = model_of(allocation_of(plan, store, eigenvectors))
        free = Limits(counts, (UNLIMITED,) * len(counts), 1)
        costs[eigenvectors] = least_cost(model, _costs(plan, store, eigenvectors), error, free).cost
    return min(costs, key=lambda eigenvectors: costs[eigenvectors])


def _costs(plan: Plan, store: Store, eigenvectors: int | None) -> tuple[float, ...]:
    """Seconds per vector of each piece."""
    pieces = _chunks(plan, f"{NOISE}{suffix(eigenvectors)}")[0].node.inputs
    return tuple(_seconds_per_vector(plan, store, piece) for piece in pieces)


def allocation_of(plan: Plan, store: Store, eigenvectors: int | None = None) -> TraceAllocation:
    """The result of a complete plan."""
    (chunk,) = _chunks(plan, f"{ALLOCATION}{suffix(eigenvectors)}")
    return TraceAllocation(**store.load(chunk.node.stage.name, chunk.key))


def _decision(
    plan: Plan,
    store: Store,
    counts: Counts,
    error: float,
    costs: tuple[float, ...],
    wanted: Allocation,
    best: int | None,
    eigenvectors: int | None,
) -> Decision:
    of_noise, *others = _chunks(plan, f"{NOISE}{suffix(best)}")
    spent = sum(
        _seconds(store, chunk) for name in _solving(plan, of_noise.node) for chunk in _chunks(plan, name)
    )
    now = sum(cost * count for cost, count in zip(costs, counts, strict=True))
    more = (1 + len(others)) * (wanted.cost - now)
    return Decision(counts, error, spent, costs, wanted.counts, wanted.error, spent + more, eigenvectors)


def _seconds_per_vector(plan: Plan, store: Store, piece: Node) -> float:
    """Seconds of a piece on one configuration, all masses.

    Median over chunks, which a first compilation cannot shift.
    """
    cost = 0.0
    for name in _solving(plan, piece):
        chunks = _chunks(plan, name)
        over = chunks[0].node.over
        of_chunk = median(_seconds(store, chunk) for chunk in chunks)
        cost += of_chunk * len(chunks) / (len(over["config"]) * len(over["noise"]))
    return cost


def solving(name: str, nodes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The stored nodes above a node, or itself, that have results for every noise vector.

    nodes: as a manifest describes them.
    """
    if "noise" in nodes[name]["over"] and not nodes[name]["transient"]:
        return [name]
    above = (each for upstream in nodes[name]["inputs"] for each in solving(upstream, nodes))
    return list(dict.fromkeys(above))


def _solving(plan: Plan, node: Node) -> list[str]:
    """`solving` of a plan's node."""
    nodes = {
        each.name: {
            "over": each.over,
            "transient": each.stage.transient,
            "inputs": [upstream.name for upstream in each.inputs],
        }
        for each in {chunk.node.name: chunk.node for chunk in plan.everything}.values()
    }
    return solving(node.name, nodes)


def _chunks(plan: Plan, name: str) -> list[Chunk]:
    return [chunk for chunk in plan.chunks if chunk.node.name == name]


def _seconds(store: Store, chunk: Chunk) -> float:
    return Record.of(store.record(chunk.node.stage.name, chunk.key)).seconds


def _vectors(counts: Counts) -> str:
    """`64 noise vectors, 8 fine`."""
    sloppy, *fine = counts
    return f"{sloppy} noise vectors" + "".join(f", {count} fine" for count in fine)
