"""Report on a target: predicted against achieved error and work, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline import InputError, Section, Store, Table, accounts, table_text
from stages.loops.noise_allocation import TraceAllocation
from workflows import loaded, nodes_of
from workflows.g2_disconnected.target import ALLOCATION, NOISE, achieved, solving


def target_section(store: Store, workflow: str) -> Section:
    """Choice of the numbers of noise vectors, round by round."""
    allocation, parameters = allocation_in(store, workflow)
    table = Table(["round", *COLUMNS], rounds(allocation, seconds_of_loops(store, workflow)), digits=3)
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
        rows = rounds(result, seconds_of_loops(store, workflow))
    except InputError:
        rows = rounds_before(node["parameters"]["earlier"])
    return [*lines, table_text(Table(["round", *COLUMNS], rows, digits=3))]


def allocation_in(store: Store, workflow: str) -> tuple[TraceAllocation, dict[str, Any]]:
    """The last round's result, and the target as its parameters say it."""
    dataset = loaded(store, workflow, ALLOCATION)
    arrays = TraceAllocation(*(dataset[name].values for name in TraceAllocation._fields))
    return arrays, dataset.attrs["parameters"]


def outcome(allocation: TraceAllocation, parameters: dict[str, Any]) -> str:
    """`C(t) of light, t = 2 ... 8: error 1.2e-05, target 1e-05; not met`."""
    first, last = parameters["window"]
    of = "one J_i(t)" if parameters["quantity"] == "loops" else f"C(t), t = {first} ... {last}"
    met = "met" if allocation.error[-1] <= allocation.asked else "not met"
    figures = achieved(parameters["ratio"], allocation)
    return f"Stochastic error of {of} of {parameters['flavour']}: {figures}; {met}"


COLUMNS = ("noise vectors", "fine", "predicted error", "achieved error", "predicted seconds", "seconds")


def rounds(allocation: TraceAllocation, seconds: float) -> list[Sequence[object]]:
    """A row per round; `seconds` are those of all loops in the end."""
    return [
        [
            number + 1,
            int(vectors[0]),
            int(vectors[1]) if len(vectors) > 1 else None,
            _known(allocation.predicted_error[number]),
            float(allocation.error[number]),
            _known(allocation.predicted_seconds[number]),
            _known(allocation.seconds[number]) or seconds,
        ]
        for number, vectors in enumerate(allocation.vectors)
    ]


def rounds_before(earlier: Sequence[Mapping[str, Any]]) -> list[Sequence[object]]:
    """A row per round, of a last one that is not complete; `earlier` as in `trace_allocation`."""
    predicted: list[list[Any]] = [
        [None, None],
        *([e["predicted_error"], e["predicted_seconds"]] for e in earlier),
    ]
    achievements: list[list[Any]] = [*([e["error"], e["seconds"]] for e in earlier), [None, None]]
    counts = [*(e["vectors"] for e in earlier), *([earlier[-1]["next_vectors"]] if earlier else [[None]])]
    return [
        [k + 1, count[0], count[1] if len(count) > 1 else None, expected[0], got[0], expected[1], got[1]]
        for k, (count, expected, got) in enumerate(zip(counts, predicted, achievements, strict=True))
    ]


def seconds_of_loops(store: Store, workflow: str) -> float:
    """Work for the loops of all noise vectors of the target's estimator."""
    wanted = solving(NOISE, nodes_of(store, workflow))
    return sum(node.seconds for node in accounts(store, workflow) if node.name in wanted)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
