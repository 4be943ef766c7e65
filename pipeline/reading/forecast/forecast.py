"""The forecast of a plan: time, memory, bytes, files and energy, by node and in all, with uncertainty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from operator import attrgetter
from statistics import geometric_mean, median

from pipeline.declare.node import Node
from pipeline.declare.signature import Output
from pipeline.planning.plan import Plan
from pipeline.reading.forecast.estimate import Estimate, added
from pipeline.reading.forecast.memory import kernel_memory, line
from pipeline.reading.forecast.model import Model
from pipeline.reading.forecast.node_times import NodeTimes
from pipeline.reading.forecast.power import joules
from pipeline.reading.forecast.samples import Machine
from pipeline.reading.forecast.schedule import schedule
from pipeline.running.event_log import read_events, runs
from pipeline.running.graph import plan_tasks, widest_level
from pipeline.store.group import PIECE_BYTES
from pipeline.store.store import PACKED_BYTES, Store
from pipeline.worker.events import ENDED, EventKind

AROUND = {"cpu": (2.0, 0.5), "cuda": (4.0, 0.6)}
"""Seconds before the first and after the last chunk of a run, as of one run that is always known.

A machine's first run takes longer, as it reads all libraries from the disk."""


@dataclass(frozen=True)
class Setting:
    """Workers of a run, and the machine of each backend that they compute on."""

    workers: int
    machines: Mapping[str, Machine]
    per_node: int
    """Workers on one node of the machine."""


@dataclass(frozen=True)
class NodeForecast:
    """Cost of a node's missing chunks; seconds with those of their transient inputs."""

    node: str
    stage: str
    machine: str
    chunks: int
    seconds: Estimate
    """Of all its chunks."""
    joules: Estimate | None
    memory: Estimate
    """Bytes of a worker's process on the host, at its peak."""
    device_memory: Estimate | None
    stored: Estimate
    """Bytes of all its chunks."""
    files: int


@dataclass(frozen=True)
class RunCost:
    """Cost of a whole run: seconds, bytes, joules; null where nothing was ever measured."""

    label: str
    workers: int
    nodes: int
    """Nodes of the machine that are taken."""
    node_hours: Estimate
    wall_seconds: Estimate
    """From the start of the driver to its end, without waiting in a queue."""
    work_seconds: Estimate
    """Of all workers."""
    memory: Estimate
    """Bytes of a worker on the host, at its peak."""
    device_memory: Estimate | None
    """Those on each of its GPUs."""
    stored: Estimate
    files: int
    joules: Estimate | None
    """Of all nodes whose devices have been measured."""
    joules_unknown: tuple[str, ...]
    """Nodes of the workflow whose energy nothing measured."""


@dataclass(frozen=True)
class Forecast:
    """Cost of a run of a plan, by node and in all."""

    workflow: str
    records: int
    """Records of earlier chunks that it was learned from."""
    total: RunCost
    nodes: tuple[NodeForecast, ...]


TICK = 1e-2
"""Seconds that anything takes at least."""


def forecast(
    plan: Plan, model: Model, setting: Setting, around: tuple[float, float], label: str = "as planned"
) -> Forecast:
    """Forecast of a plan's missing chunks on some workers. around: seconds before and after all chunks."""
    times, tasks = NodeTimes(plan, model, setting.machines), plan_tasks(plan)
    workers = max(1, min(setting.workers, widest_level(tasks)))
    run_seconds, nbytes = schedule(tasks, workers, times.seconds, times.overhead)
    held = {name: nbytes if on.backend == plan.backend else 0 for name, on in times.machines.items()}
    rows = tuple(_node_forecast(times, name, held[name]) for name in times.counts)
    work, seconds = added([row.seconds for row in rows]), run_seconds + sum(around)
    wall = Estimate(seconds, work.sigma * run_seconds / max(seconds, 1e-9))
    nodes, drawn = ceil(workers / setting.per_node), [row.joules for row in rows if row.joules]
    total = RunCost(
        label=label,
        workers=workers,
        nodes=nodes,
        node_hours=wall.times(Estimate(nodes / 3600)),
        wall_seconds=wall,
        work_seconds=work,
        memory=_largest(row.memory for row in rows) or Estimate(0.0),
        device_memory=_largest(row.device_memory for row in rows),
        stored=added([row.stored for row in rows]),
        files=sum(row.files for row in rows),
        joules=added(drawn) if drawn else None,
        joules_unknown=tuple(row.node for row in rows if row.joules is None),
    )
    return Forecast(plan.workflow, len(model.samples), total, rows)


def _largest(estimates: Iterable[Estimate | None]) -> Estimate | None:
    return max((each for each in estimates if each), key=attrgetter("value"), default=None)


def _node_forecast(times: NodeTimes, name: str, held: int) -> NodeForecast:
    """held: bytes of results that stay on a worker."""
    model, node, machine, chunks = times.model, times.nodes[name], times.machines[name], times.counts[name]
    seconds, worked = times.spent(name)
    power = model.watts.get(machine)
    own = [(s.expected["stored"], s.stored) for s in model.stages.get(node.stage.name, ())]
    stored = line(own, node.cost.stored, 1.0)
    return NodeForecast(
        node=node.name,
        stage=node.stage.name,
        machine=str(machine),
        chunks=chunks,
        seconds=seconds,
        joules=None if power is None else joules(power, worked, seconds),
        memory=_host_memory(times, name, held),
        device_memory=_device_memory(times, name, held) if machine.backend == "cuda" else None,
        stored=Estimate(chunks * stored.value, stored.sigma),
        files=chunks * _files(node, model),
    )


def _host_memory(times: NodeTimes, name: str, held: int) -> Estimate:
    node, machine = times.nodes[name], times.machines[name]
    memory = times.model.memory[machine.backend]
    estimate = memory.on_host(node.stage.name, node.cost.memory)
    others = 0.0
    if machine.backend == "cpu":
        own = sum(each.cost.device_memory for each in times.fused[name].values() if each.stage.resident)
        others = max(0.0, memory.kept(held) - memory.kept(own))
    return Estimate(estimate.value + others + kernel_memory(times.kernel_bytes(machine)), estimate.sigma)


def _device_memory(times: NodeTimes, name: str, held: int) -> Estimate:
    gpus, stage = times.machines[name].gpus, times.nodes[name].stage.name
    costs = [each.cost for each in times.fused[name].values() if not each.stage.resident]
    declared = sum(cost.on_each(gpus).device_memory for cost in costs)
    return times.model.memory["cuda"].on_device(stage, declared, held // gpus)


def _files(node: Node, model: Model) -> int:
    """Files of a chunk: one, or a folder's with those that its arrays are cut into."""
    outputs = node.stage.outputs
    if node.cost.stored <= PACKED_BYTES and not any(output.pieces for output in outputs):
        return 1
    pieces = [_pieces(node, output) for output in outputs]
    known = [sample.files for sample in model.stages.get(node.stage.name, ()) if sample.files > 1]
    if None in pieces and known:
        return round(median(known))
    return 1 + sum(1 + (each or 1) for each in pieces) + node.cost.stored // PIECE_BYTES


def _pieces(node: Node, output: Output) -> int | None:
    """Pieces of an array, by the dimensions that its stage is mapped over; None where others are cut."""
    if not set(output.pieces) <= set(node.over):
        return None
    return prod(ceil(node.chunk[dim] / length) for dim, length in output.pieces.items())


def run_overheads(stores: Sequence[Store], backend: str) -> tuple[float, float]:
    """Seconds before the first chunk and after the last one: geometric means of the stores' runs."""
    known = [AROUND[backend]]
    for store in stores:
        for run in runs(store)[-10:]:
            first: dict[str, float] = {}
            last = 0.0
            for event in read_events(store, run):
                first.setdefault(event.kind, event.time)
                last = event.time if event.kind in ENDED else last
            if last and {EventKind.RUN_STARTED, EventKind.STARTED, EventKind.RUN_ENDED} <= first.keys():
                before = first[EventKind.STARTED] - first[EventKind.RUN_STARTED]
                known.append((max(before, TICK), max(first[EventKind.RUN_ENDED] - last, TICK)))
    return geometric_mean(each for each, _ in known), geometric_mean(each for _, each in known)
