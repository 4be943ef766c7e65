"""The forecast of a plan: time, memory, bytes, files and energy, by node and in all, with uncertainty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from math import ceil, hypot, prod
from operator import itemgetter
from statistics import geometric_mean, median

from pipeline.declare.node import Node
from pipeline.declare.signature import Output
from pipeline.planning.plan import Plan
from pipeline.reading.forecast.kernels import OUTSIDE
from pipeline.reading.forecast.memory import COMPILERS, kept, line, on_device, on_host, slope
from pipeline.reading.forecast.model import Estimate, Model
from pipeline.reading.forecast.power import Regimes
from pipeline.reading.forecast.samples import Machine, gpus
from pipeline.reading.forecast.schedule import Schedule, schedule
from pipeline.running.event_log import read_events, runs
from pipeline.running.graph import COMMIT, plan_tasks, widest_level
from pipeline.store.group import PIECE_BYTES
from pipeline.store.store import PACKED_BYTES, Store
from pipeline.worker.events import ENDED, EventKind

COMMITTED = 300e6
"""Bytes a second that commits of large chunks write, on a local disk."""

KERNELS = 0.3
"""Of the logarithm of the seconds in which kernels are compiled."""

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
        """Peak bytes of a worker on each of its GPUs."""
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


TICK = 1e-2
"""Seconds that anything takes at least."""


def added(parts: Sequence[Estimate]) -> Estimate:
    """The sum of independent estimates."""
    total = sum(each.value for each in parts)
    spread = hypot(*(each.value * each.sigma for each in parts)) if parts else 0.0
    return Estimate(total, spread / total if total else 0.0)


def forecast(plan: Plan, model: Model, setting: Setting, around: tuple[float, float]) -> Forecast:
    """Forecast of a plan's missing chunks on some workers. around: seconds before and after all chunks."""
    nodes = {chunk.node.name: chunk.node for chunk in plan.everything}
    counts = Counter(chunk.node.name for chunk in plan.missing)

    def machine_of(node: Node, consumer: str = "cpu") -> Machine:
        stage = node.stage
        backend = consumer if stage.transient and not stage.resources.device else stage.backend(plan.backend)
        return setting.machines[backend]

    consumers = _consumers(nodes.values(), plan.backend)

    @cache
    def estimate(name: str, first: bool) -> tuple[Estimate, Regimes]:
        """Seconds of a node's own part of a chunk, and those of them in which a device is at work."""
        node = nodes[name]
        machine, stage, work = machine_of(node, consumers.get(name, "cpu")), node.stage.name, node.cost.work
        seconds = model.seconds(stage, machine, work, first)
        kernels = model.kernels_of(stage, machine, work).seconds if first else 0.0
        return added([seconds, Estimate(kernels, KERNELS)]), model.regimes(stage, machine, work)

    def beside(name: str) -> float:
        return model.beside(nodes[name].stage.name, nodes[name].cost)

    def overhead(name: str, opening: bool) -> float:
        each = beside(name) + COMMIT + nodes[name].cost.stored / COMMITTED
        if not opening:
            return each
        machine = machine_of(nodes[name])
        return each + model.opening(machine) + model.kernels_of(OUTSIDE, machine, ()).seconds

    tasks = plan_tasks(plan)
    workers = max(1, min(setting.workers, widest_level(tasks)))
    spent, worked = dict.fromkeys(nodes, 0.0), dict.fromkeys(nodes, Regimes())
    sigmas: dict[str, float] = {}

    def seconds(name: str, first: bool) -> float:
        each, regimes = estimate(name, first)
        spent[name] += each.value
        worked[name] = worked[name].plus(regimes)
        sigmas[name] = each.sigma
        return each.value

    run: Schedule = schedule(tasks, workers, seconds, overhead)
    rows = []
    for name, number in counts.items():
        node, machine = nodes[name], machine_of(nodes[name])
        own = [name, *_transient(node)]
        shares = {each: _share(each, name, nodes, counts) for each in own}
        parts = [Estimate(shares[each] * spent[each], sigmas.get(each, 0.0)) for each in own]
        time = added([*parts, Estimate(number * beside(name), 0.3)])
        regimes = reduce(Regimes.plus, (worked[each].times(shares[each]) for each in own))
        worker = _Worker(
            run.held // gpus(machine) if machine.backend == plan.backend else 0,
            sum(
                model.kernels_of(each.stage.name, machine, each.cost.work).nbytes
                for each in nodes.values()
                if machine_of(each, consumers.get(each.name, "cpu")) == machine
            ),
        )
        rows.append(_node_forecast(node, machine, number, time, regimes, worker, model))
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


def _share(part: str, consumer: str, nodes: Mapping[str, Node], counts: Mapping[str, int]) -> float:
    """Share of a part that is a consumer's: all of its own, of a transient input by numbers of chunks."""
    if part == consumer:
        return 1.0
    users = {name: counts[name] for name in counts if part in _transient(nodes[name])}
    return counts[consumer] / sum(users.values())


def _consumers(nodes: Iterable[Node], cluster: str) -> dict[str, str]:
    """Backend that each transient node runs on: that of the nodes that it is made for."""
    backends: dict[str, str] = {}
    for node in nodes:
        if not node.stage.transient:
            for name in _transient(node):
                backends[name] = max(backends.get(name, "cpu"), node.stage.backend(cluster))
    return backends


@dataclass(frozen=True)
class _Worker:
    """Bytes of a worker beside its chunk: results that stay, as declared, on a GPU; kernels on the host."""

    held: float
    kernels: float


def _node_forecast(
    node: Node,
    machine: Machine,
    chunks: int,
    seconds: Estimate,
    regimes: Regimes,
    worker: _Worker,
    model: Model,
) -> NodeForecast:
    own = [each for each in model.samples if each.stage == node.stage.name]
    cost, power = node.cost, model.power(machine)
    joules = None
    if power:
        joules = Estimate(power.joules(regimes, seconds.value), hypot(power.sigma, seconds.sigma))
    stored = line([(s.expected["stored"], s.stored) for s in own], cost.stored, 1.0)
    return NodeForecast(
        node=node.name,
        stage=node.stage.name,
        machine=str(machine),
        chunks=chunks,
        seconds=seconds,
        joules=joules,
        memory=_host_memory(node, machine, worker, model),
        device_memory=_device_memory(node, machine, worker, model) if machine.backend == "cuda" else None,
        stored=Estimate(chunks * stored.value, stored.sigma),
        files=chunks * _files(node, model),
    )


def _host_memory(node: Node, machine: Machine, worker: _Worker, model: Model) -> Estimate:
    alike = [each for each in model.samples if each.machine.backend == machine.backend]
    of_kept = kept(alike)
    rows = on_host(alike, of_kept)
    declaring = [(x, y) for _, x, y in rows if x]
    own = [(x, y) for sample, x, y in rows if sample.stage == node.stage.name]
    least = [min(own, key=itemgetter(1))] if own else declaring  # others have what heaps did not give back
    estimate = line(least, node.cost.memory, slope(declaring) if node.cost.memory else 0.0)
    others = 0.0
    if machine.backend == "cpu":
        held = sum(each.cost.device_memory for each in _resident(node) if each.stage.resident)
        others = max(0.0, of_kept.bytes(worker.held) - of_kept.bytes(held))
    kernels = max(COMPILERS, worker.kernels) if worker.kernels else 0.0
    return Estimate(estimate.value + others + kernels, estimate.sigma)


def _device_memory(node: Node, machine: Machine, worker: _Worker, model: Model) -> Estimate:
    alike = [each for each in model.samples if each.machine.backend == "cuda"]
    costs = [each.cost for each in (node, *_resident(node)) if each is node or not each.stage.resident]
    at = sum(cost.on_each(gpus(machine)).device_memory for cost in costs)
    ratios = [y / x for sample, x, y in on_device(alike) if sample.stage == node.stage.name and x]
    stays = kept(alike).bytes(worker.held)
    return Estimate(at * max(ratios, default=1.0) + stays, 0.05 if ratios else 0.3)


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


def run_overheads(stores: Sequence[Store], backend: str) -> tuple[float, float]:
    """Seconds before the first chunk and after the last one: geometric means of the stores' runs."""
    known = [AROUND[backend]]
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
                before = times[EventKind.STARTED] - times[EventKind.RUN_STARTED]
                known.append((max(before, TICK), max(times[EventKind.RUN_ENDED] - last, TICK)))
    return geometric_mean(each for each, _ in known), geometric_mean(each for _, each in known)
