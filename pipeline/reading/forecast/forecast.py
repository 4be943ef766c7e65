"""The forecast of a plan: time, memory, bytes, files and energy, by node and in all, with uncertainty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, hypot, prod
from statistics import median

from pipeline.declare.node import Node
from pipeline.declare.signature import Output
from pipeline.planning.plan import Plan
from pipeline.reading.forecast.model import Estimate, Model, line
from pipeline.reading.forecast.samples import Machine
from pipeline.reading.forecast.schedule import Schedule, schedule
from pipeline.running.event_log import read_events, runs
from pipeline.running.graph import COMMIT, plan_tasks, widest_level
from pipeline.store.group import PIECE_BYTES
from pipeline.store.store import PACKED_BYTES, Store
from pipeline.worker.events import ENDED, EventKind

COMMITTED = 300e6
"""Bytes a second that commits of large chunks write, on a local disk."""

START, END = 4.0, 1.0
"""Seconds before the first and after the last chunk of a run, where no run tells."""


@dataclass(frozen=True)
class Setting:
    """Workers of a run, and the machine of each backend that they compute on."""

    workers: int
    machines: Mapping[str, Machine]
    per_node: int
    """Workers on one node of the machine."""

    @property
    def nodes(self) -> int:
        """Nodes that are taken."""
        return -(-self.workers // self.per_node)


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
class Forecast:
    """Cost of a run of a plan."""

    workflow: str
    setting: Setting
    nodes: tuple[NodeForecast, ...]
    wall: Estimate
    """Seconds from the start of the driver to its end, without waiting in a queue."""
    work: Estimate
    """Seconds of all workers."""
    samples: int
    """Records that it was learned from."""
    start: float
    """Seconds of `wall` before the first chunk and after the last."""

    @property
    def node_hours(self) -> Estimate:
        """Nodes times wall time."""
        return Estimate(self.setting.nodes * self.wall.value / 3600, self.wall.sigma)

    @property
    def joules(self) -> Estimate | None:
        """Energy of all nodes whose devices have been measured; None where that is none."""
        known = [node.joules for node in self.nodes if node.joules]
        return added(known) if known else None

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Nodes whose energy nothing measured."""
        return tuple(node.node for node in self.nodes if node.joules is None)

    @property
    def memory(self) -> Estimate:
        """Peak bytes of a worker on the host."""
        return max((node.memory for node in self.nodes), key=lambda e: e.value, default=Estimate(0.0))

    @property
    def device_memory(self) -> Estimate | None:
        """Peak bytes of a worker on its GPU."""
        known = [node.device_memory for node in self.nodes if node.device_memory]
        return max(known, key=lambda each: each.value, default=None)

    @property
    def stored(self) -> Estimate:
        """Bytes written to the store."""
        return added([node.stored for node in self.nodes])

    @property
    def files(self) -> int:
        """Files written to the store."""
        return sum(node.files for node in self.nodes)


def added(parts: Sequence[Estimate]) -> Estimate:
    """The sum of independent estimates."""
    total = sum(each.value for each in parts)
    spread = hypot(*(each.value * each.sigma for each in parts)) if parts else 0.0
    return Estimate(total, spread / total if total else 0.0)


def forecast(
    plan: Plan, model: Model, setting: Setting, around: tuple[float, float] = (START, END)
) -> Forecast:
    """Forecast of a plan's missing chunks on some workers. around: seconds before and after all chunks."""
    nodes = {chunk.node.name: chunk.node for chunk in plan.everything}
    counts = Counter(chunk.node.name for chunk in plan.missing)

    def machine_of(node: Node, consumer: str = "cpu") -> Machine:
        stage = node.stage
        backend = consumer if stage.transient and not stage.resources.device else stage.backend(plan.backend)
        return setting.machines[backend]

    consumers = _consumers(nodes.values(), plan.backend)

    @cache
    def estimate(name: str, first: bool) -> Estimate:
        node = nodes[name]
        machine = machine_of(node, consumers.get(name, "cpu"))
        return model.seconds(node.stage.name, machine, node.cost.work, first)

    def overhead(name: str, _: bool) -> float:
        return model.rest(nodes[name].stage.name) + COMMIT + nodes[name].cost.stored / COMMITTED

    tasks = plan_tasks(plan)
    workers = max(1, min(setting.workers, widest_level(tasks)))
    spent = dict.fromkeys(nodes, 0.0)
    sigmas: dict[str, float] = {}

    def seconds(name: str, first: bool) -> float:
        each = estimate(name, first)
        spent[name] += each.value
        sigmas[name] = each.sigma
        return each.value

    run: Schedule = schedule(tasks, workers, seconds, overhead)
    rows = []
    for name, number in counts.items():
        node, machine = nodes[name], machine_of(nodes[name])
        own = [name, *_transient(node)]
        parts = [Estimate(_share(each, name, nodes, spent, counts), sigmas.get(each, 0.0)) for each in own]
        time = added([*parts, Estimate(number * overhead(name, False), 0.3)])
        rows.append(_node_forecast(node, machine, number, time, model))
    # what transient inputs take is shared by the nodes that they are made for
    work = added([row.seconds for row in rows])
    wall = Estimate(run.wall + sum(around), work.sigma * run.wall / max(run.wall + sum(around), 1e-9))
    used = Setting(workers, setting.machines, setting.per_node)
    return Forecast(plan.workflow, used, tuple(rows), wall, work, len(model.samples), sum(around))


def _transient(node: Node) -> list[str]:
    """Names of a node's transient inputs, those of inputs among them."""
    names: list[str] = []
    for source in node.inputs:
        if source.stage.transient:
            names += [source.name, *_transient(source)]
    return list(dict.fromkeys(names))


def _share(
    part: str, consumer: str, nodes: Mapping[str, Node], spent: Mapping[str, float], counts: Mapping[str, int]
) -> float:
    """Seconds of a part that are a consumer's: all of its own, of a transient input by numbers of chunks."""
    if part == consumer:
        return spent[part]
    users = {name: counts[name] for name in counts if part in _transient(nodes[name])}
    return spent[part] * counts[consumer] / sum(users.values())


def _consumers(nodes: Iterable[Node], cluster: str) -> dict[str, str]:
    """Backend that each transient node runs on: that of the nodes that it is made for."""
    backends: dict[str, str] = {}
    for node in nodes:
        if not node.stage.transient:
            for name in _transient(node):
                backends[name] = max(backends.get(name, "cpu"), node.stage.backend(cluster))
    return backends


def _node_forecast(
    node: Node, machine: Machine, chunks: int, seconds: Estimate, model: Model
) -> NodeForecast:
    own = [each for each in model.samples if each.stage == node.stage.name]
    alike = [each for each in own if each.machine.backend == machine.backend] or own
    cost, watts = node.cost, model.watts(machine)
    host = [(s.expected["memory"], s.host_bytes) for s in alike if s.host_bytes]
    memory = line(host, cost.memory, model.process_bytes, model.host_share)
    stored = line([(s.expected["stored"], s.stored) for s in own], cost.stored, 1.0)
    return NodeForecast(
        node=node.name,
        stage=node.stage.name,
        machine=str(machine),
        chunks=chunks,
        seconds=seconds,
        joules=watts and Estimate(watts.value * seconds.value, hypot(watts.sigma, seconds.sigma)),
        memory=memory if cost.memory else Estimate(model.process_bytes, 0.1),
        device_memory=_device_memory(node, model) if machine.backend == "cuda" else None,
        stored=Estimate(chunks * stored.value, stored.sigma),
        files=chunks * _files(node, model),
    )


def _device_memory(node: Node, model: Model) -> Estimate:
    held = sum(each.cost.device_memory for each in _resident(node))
    points = [
        (s.expected["device_memory"], s.device_bytes)
        for s in model.samples
        if s.stage == node.stage.name and s.device_bytes
    ]
    at = node.cost.device_memory + held
    ratios = [measured / declared for declared, measured in points if declared]
    return Estimate(at * (median(ratios) if ratios else 1.0), 0.05 if ratios else 0.3)


def _resident(node: Node) -> set[Node]:
    """Transient inputs of a node."""
    return {each for source in node.inputs if source.stage.transient for each in (source, *_resident(source))}


def _files(node: Node, model: Model) -> int:
    """Files of a chunk: one, or a folder's with those that its arrays are cut into."""
    outputs = node.stage.outputs
    if node.cost.stored <= PACKED_BYTES and not any(output.pieces for output in outputs):
        return 1
    pieces = [_pieces(node, output) for output in outputs]
    known = [s.files for s in model.samples if s.stage == node.stage.name and s.files > 1]
    if None in pieces and known:
        return round(median(known))
    return 1 + sum(1 + (each or 1) for each in pieces) + node.cost.stored // PIECE_BYTES


def _pieces(node: Node, output: Output) -> int | None:
    """Pieces of an array, by the dimensions that its stage is mapped over; None where others are cut."""
    if not set(output.pieces) <= set(node.over):
        return None
    return prod(ceil(node.chunk[dim] / length) for dim, length in output.pieces.items())


def run_overheads(stores: Sequence[Store]) -> tuple[float, float]:
    """Seconds before the first chunk and after the last one, medians of the stores' runs."""
    before, after = [], []
    for store in stores:
        for run in runs(store)[-10:]:
            times = {EventKind.RUN_STARTED: 0.0, EventKind.STARTED: 0.0, EventKind.RUN_ENDED: 0.0}
            last = 0.0
            for event in read_events(store, run):
                kind = event.get("event")
                if kind in times and not times[kind]:
                    times[kind] = event["time"]
                last = event["time"] if kind in ENDED else last
            if all(times.values()) and last:
                before.append(times[EventKind.STARTED] - times[EventKind.RUN_STARTED])
                after.append(times[EventKind.RUN_ENDED] - last)
    return (median(before), median(after)) if before else (START, END)
