"""A forecast as sections of a page that one can put into a proposal, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted, energy_text, format_bytes
from pipeline.reading.forecast.estimate import Estimate
from pipeline.reading.forecast.forecast import Forecast, RunCost
from pipeline.reading.report import Section, Table

METHOD = (
    "Each stage says how often it goes over how many bytes. What a pass takes by itself and for each byte is "
    "fitted to the records of earlier chunks on the same machine; the numbers of iterations are what the "
    "theory expects times what records found under the same settings. Wall time is that of a simulated run "
    "of all tasks with their dependencies on these workers, start-up included, waiting in a queue not. "
    "Ranges are 68 % (log-normal)."
)
LITTLE = (
    "No record of earlier chunks was found: times are those of a machine as it is expected, and may be off "
    "by factors. A run of a smaller lattice on the same machine, given with --learn-from, or the first "
    "chunks of this one, which --pilot computes, make them useful."
)


def duration(estimate: Estimate) -> str:
    """`3h 12m (2h 54m to 3h 36m)`."""
    low, high = (duration_text(estimate.value * exp(sign * estimate.sigma)) for sign in (-1, 1))
    return f"{duration_text(estimate.value)} ({low} to {high})"


def size(estimate: Estimate | None) -> str | None:
    """`1.2 GiB +- 5 %`."""
    return None if estimate is None else f"{format_bytes(round(estimate.value))}{_percent(estimate)}"


def energy(estimate: Estimate | None) -> str | None:
    """`1.2 MJ +- 15 %`."""
    return None if estimate is None else f"{energy_text(estimate.value)}{_percent(estimate)}"


def _percent(estimate: Estimate) -> str:
    return f" ± {100 * estimate.sigma:.0f} %" if estimate.sigma >= 0.005 else ""


def totals(cost: RunCost) -> list[tuple[str, str]]:
    """The numbers that a proposal asks for, by name."""
    unmeasured = f"; without {', '.join(cost.joules_unknown)}" if cost.joules_unknown else ""
    joules, device = energy(cost.joules), size(cost.device_memory)
    return [
        ("workers", f"{cost.workers} on {counted(cost.nodes, 'node')}"),
        ("node-hours", f"{cost.node_hours.value:.3g}{_percent(cost.node_hours)}"),
        ("wall time", duration(cost.wall_seconds)),
        ("work of all workers", duration(cost.work_seconds)),
        ("peak memory of a worker", f"{size(cost.memory)}"),
        *([("peak GPU memory of a worker", device)] if device else []),
        ("bytes written", f"{size(cost.stored)}"),
        ("files written", f"{cost.files}"),
        ("energy", f"{joules}{unmeasured}" if joules else "unknown: no counter of the device was ever read"),
    ]


def learned_from(forecast: Forecast, unknown: Sequence[str], remedy: str = "") -> str:
    """Sentence on the records behind a forecast, for page and terminal; unknown: nodes without any."""
    learned = f"Learned from {counted(forecast.records, 'record')}"
    nothing = f"; no timings on that machine of {', '.join(unknown)}: their times are model estimates{remedy}"
    return f"{learned}{nothing if unknown else ''}."


def sections(
    forecast: Forecast, workers: Sequence[RunCost], others: Sequence[RunCost], unknown: Sequence[str] = ()
) -> list[Section]:
    """The page: totals, nodes, numbers of workers, alternatives.

    workers: the same with other numbers of workers. others: alternatives. unknown: nodes without records.
    """
    known = learned_from(forecast, unknown) if forecast.records else LITTLE
    total = Table(["of the whole run", "forecast"], [list(row) for row in totals(forecast.total)])
    team = _table([(str(each.workers), each) for each in workers])
    alternatives = _table([(each.label, each) for each in (forecast.total, *others)])
    return [
        Section("What it takes", f"{METHOD} {known}", [total]),
        Section("By node of the workflow", "Work is summed over all chunks.", [_nodes(forecast)]),
        Section("Numbers of workers", "The same work.", [team]),
        *([Section("Alternatives", "", [alternatives])] if others else []),
    ]


def _nodes(forecast: Forecast) -> Table:
    head = ["node", "chunks", "work", "energy", "memory", "GPU memory", "stored", "files", "machine"]
    rows: list[list[object]] = []
    for node in forecast.nodes:
        bytes_taken = size(node.memory), size(node.device_memory), size(node.stored)
        spent = duration(node.seconds), energy(node.joules)
        rows.append([node.node, node.chunks, *spent, *bytes_taken, node.files, node.machine])
    return Table(head, rows)


def _table(costs: Sequence[tuple[str, RunCost]]) -> Table:
    head = ["", "workers", "node-hours", "wall time", "work", "memory", "stored", "energy"]
    rows: list[list[object]] = []
    for name, each in costs:
        times = f"{each.node_hours.value:.3g}", duration(each.wall_seconds), duration(each.work_seconds)
        rows.append([name, each.workers, *times, size(each.memory), size(each.stored), energy(each.joules)])
    return Table(head, rows)
