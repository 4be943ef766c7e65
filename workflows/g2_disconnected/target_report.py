"""Report on a target: predicted against achieved error and work, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline import InputError, Section, Store, Table, accounts, table_text
from stages.loops.noise_allocation import TraceAllocation, quantity_text
from workflows import loaded, nodes_of
from workflows.g2_disconnected.target import ALLOCATION, NOISE, achieved, solving


def target_section(store: Store, workflow: str) -> Section:
    """Choice of the numbers of noise vectors, round by round."""
    allocation, parameters = allocation_in(store, workflow)
    table = Table(
        ["round", *COLUMNS],
        rounds(parameters["earlier"], allocation, seconds_of_loops(store, workflow)),
        digits=3,
    )
    text = (
        f"{outcome(allocation, parameters)}. Errors at fixed gauge field of one configuration, root mean "
        f"square; of the mean over configurations: {float(allocation.mean_error):.2e}. Gauge noise of one "
        "configuration: "
        + (f"{float(allocation.gauge):.2e}." if allocation.gauge else "hidden by the stochastic noise.")
    )
    return Section("Target", text, [table])


def target_lines(store: Store, workflow: str) -> list[str]:
    """Lines for people on the rounds until now of a workflow that has a target in a store."""
    node = nodes_of(store, workflow).get(ALLOCATION)
    if not node:
        return []
    lines = [f"rounds towards the target of {workflow}, this one last:"]
    try:
        result, parameters = allocation_in(store, workflow)
        lines.append(outcome(result, parameters))
        rows = rounds(parameters["earlier"], result, seconds_of_loops(store, workflow))
    except InputError:
        rows = rounds(node["parameters"]["earlier"], None, None)
    return [*lines, table_text(Table(["round", *COLUMNS], rows, digits=3))]


def allocation_in(store: Store, workflow: str) -> tuple[TraceAllocation, dict[str, Any]]:
    """The last round's result, and the target as its parameters say it."""
    dataset = loaded(store, workflow, ALLOCATION)
    arrays = TraceAllocation(*(dataset[name].values for name in TraceAllocation._fields))
    return arrays, dataset.attrs["parameters"]


def outcome(allocation: TraceAllocation, parameters: dict[str, Any]) -> str:
    """`C(t) of light, t = 2 ... 8: error 1.2e-05, target 1e-05; not met`."""
    met = "met" if allocation.error[-1] <= allocation.asked else "not met"
    figures = achieved(parameters["ratio"], allocation)
    return f"Stochastic error of {quantity_text(parameters)}: {figures}; {met}"


COLUMNS = ("noise vectors", "fine", "predicted error", "achieved error", "predicted seconds", "seconds")


def rounds(
    earlier: Sequence[Mapping[str, Any]], last: TraceAllocation | None, seconds: float | None
) -> list[Sequence[object]]:
    """A row per round: those before, as `trace_allocation` is told of them, and the last one.

    last: its result, if it is complete; seconds: of its loops, then.
    """
    expected = [(None, None), *((each["predicted_error"], each["predicted_seconds"]) for each in earlier)]
    vectors, achievements = (
        [each["vectors"] for each in earlier],
        [(e["error"], e["seconds"]) for e in earlier],
    )
    if last is None:
        vectors.append(earlier[-1]["next_vectors"] if earlier else [None])
        achievements.append((None, None))
    else:
        vectors.append([int(count) for count in last.vectors[-1]])
        achievements.append((float(last.error[-1]), seconds))
    return [
        [number, count[0], count[1] if len(count) > 1 else None, error, got, work, spent]
        for number, (count, (error, work), (got, spent)) in enumerate(
            zip(vectors, expected, achievements, strict=True), start=1
        )
    ]


def seconds_of_loops(store: Store, workflow: str) -> float:
    """Work for the loops of all noise vectors of the target's estimator."""
    wanted = solving(NOISE, nodes_of(store, workflow))
    return sum(node.seconds for node in accounts(store, workflow) if node.name in wanted)
