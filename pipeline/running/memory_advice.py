"""Memory that the tasks of a plan take, whether a machine has it, and what would make them fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

from pipeline.declare.node import Cost, Shares
from pipeline.declare.text import counted, format_bytes, gigabytes, text_table
from pipeline.planning.chunk import Chunk
from pipeline.planning.key import node_keys
from pipeline.planning.plan import Plan
from pipeline.planning.workflow import Economies, Workflow
from pipeline.running.clusters import CONTEXT, Cluster, Devices
from pipeline.running.graph import plan_tasks, widest_level
from pipeline.worker.resident import DEVICE_SHARE
from stages.base.errors import InputError

KEPT = "kept of other configurations"
OTHER = "other"

USUAL = (1, 2, 4, 8, 16)
"""GPUs of a worker that are proposed where those of a machine are not known."""

TWICE = 1.86
"""Speed of two GPUs that share their tasks against one, as measured (docs/many_gpus.md)."""

NAMED_TERMS = 4
"""Terms that a sentence names, the largest."""
SHOWN_SHARE = 0.001
"""Of the whole: a table leaves smaller terms out."""

Costs = Mapping[str, Cost]
"""By node."""

Changes = Mapping[str, Any]
"""Values by key of the parameter file; None: the key is left out."""


@dataclass(frozen=True)
class DeviceTerm:
    """A part of what a GPU holds in a plan's largest task.

    node: that it is of; empty for what is kept of other tasks.
    """

    node: str
    term: str
    bytes: int


@dataclass(frozen=True)
class Footprint:
    """Tasks with the resident results that they hold on a GPU, whatever each costs."""

    tasks: tuple[tuple[str, tuple[str, ...]], ...]
    """Node of a task, and of each result that stays for it: every combination once."""
    resident: tuple[str, ...]
    """Node of every result that stays, for any task."""

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> Footprint:
        """The footprint of some chunks of a plan."""
        tasks = {(chunk.node.name, _names(_resident([chunk]))): None for chunk in chunks}
        return cls(tuple(tasks), _names(_resident(chunks)))

    def among(self, nodes: Collection[str]) -> Footprint:
        """The tasks of some nodes alone."""
        return replace(self, tasks=tuple(task for task in self.tasks if task[0] in nodes))

    def least(self, costs: Costs) -> int:
        """Bytes that the largest task needs with the results that it uses: others make room for it."""
        return max((_sum(costs, task, *held) for task, held in self.tasks), default=0)

    def largest(self, costs: Costs) -> tuple[str, tuple[str, ...]]:
        """Node of that task, and those of the results that stay for it."""
        return max(self.tasks, key=lambda each: _sum(costs, each[0], *each[1]))

    def on_each(self, costs: Costs, devices: Devices) -> int:
        """Bytes of a GPU's pool at its largest, beside what is kept there of other tasks, too."""
        task = max((_sum(costs, name) for name, _ in self.tasks), default=0)
        held = sorted((_sum(costs, name) for name in self.resident), reverse=True)
        mine = sum(held[: -(-len(held) // devices.workers)])
        filled = task + min(mine, int(DEVICE_SHARE * devices.memory))
        return max(self.least(costs), min(filled, devices.memory - CONTEXT))

    def terms(self, costs: Costs, total: int) -> list[DeviceTerm]:
        """Parts of the largest task, the largest first, and what is kept beside it; `total` bytes in all."""
        if not total:
            return []
        task, held = self.largest(costs)
        parts = [term for name in (task, *held) for term in _terms(name, costs.get(name, Cost()))]
        kept = DeviceTerm("", KEPT, total - _sum(costs, task, *held))
        return sorted((part for part in (*parts, kept) if part.bytes), key=lambda part: -part.bytes)


def costs_of(plan: Plan, gpus: int = 1) -> dict[str, Cost]:
    """Cost of each node of a plan, on one of the GPUs of a worker that owns so many."""
    nodes = dict.fromkeys(chunk.node for chunk in plan.everything)
    return {node.name: node.cost.on_each(gpus) for node in nodes}


def device_terms(plan: Plan, devices: Devices | None, gpus_per_worker: int = 1) -> list[DeviceTerm]:
    """Parts of the memory of a GPU that a plan takes, the largest first; none where no task has a figure.

    Where the GPUs are not known, of what the largest task takes. gpus_per_worker: where they are not known.
    """
    gpus = devices.per_worker if devices else gpus_per_worker
    footprint, costs = Footprint.of(plan.missing), costs_of(plan, gpus)
    total = footprint.on_each(costs, devices) if devices else footprint.least(costs)
    return footprint.terms(costs, total)


def device_memory(plan: Plan, devices: Devices | None) -> int:
    """Bytes of these parts together."""
    return sum(term.bytes for term in device_terms(plan, devices))


def _terms(node: str, cost: Cost) -> list[DeviceTerm]:
    other = cost.device_memory - sum(cost.terms.values())
    return [DeviceTerm(node, name, nbytes) for name, nbytes in (*cost.terms.items(), (OTHER, other))]


def _sum(costs: Costs, *names: str) -> int:
    return sum(costs[name].device_memory for name in names if name in costs)


def _names(chunks: Iterable[Chunk]) -> tuple[str, ...]:
    return tuple(sorted(chunk.node.name for chunk in chunks))


def _resident(chunks: Iterable[Chunk]) -> Iterable[Chunk]:
    """The transient, resident results that chunks are computed from, each once."""
    sources = chain.from_iterable(chunk.transient() for chunk in chunks)
    return {source.key: source for source in sources if source.node.stage.resident}.values()


@dataclass(frozen=True)
class Shortage:
    """Memory that a cluster lacks for a plan, in words, and changes of which each makes the plan fit."""

    text: str
    remedies: tuple[Changes, ...]


def shortage(plan: Plan, cluster: Cluster) -> Shortage | None:
    """Memory that the cluster lacks; None if all fits or either number is unknown."""
    limit, devices = cluster.memory_limit, cluster.devices
    if limit is not None and plan.memory > limit:
        return _of_the_host(plan, limit)
    return _of_a_device(plan, devices) if devices else None


def _of_the_host(plan: Plan, limit: int) -> Shortage:
    largest = max(plan.missing, key=lambda chunk: chunk.node.cost.memory).node

    def needed(costs: Costs, missing: Collection[str]) -> int:
        return max((cost.memory for name, cost in costs.items() if name in missing), default=0)

    known, _ = _remedies(plan, needed, limit)
    joint = "; " if known == [] else ", or "
    return Shortage(
        f"a task of node {largest.name!r} needs {format_bytes(largest.cost.memory)} of memory (projected), "
        f"but this machine has {format_bytes(limit)}: {_fitting(known)}{joint}"
        "use a cluster with more memory",
        tuple(known or ()),
    )


def _of_a_device(plan: Plan, devices: Devices) -> Shortage | None:
    gpus, room = devices.per_worker, devices.memory - CONTEXT
    footprint, costs = Footprint.of(plan.missing), costs_of(plan, gpus)
    if (needed := footprint.least(costs)) <= room:
        return None
    terms = footprint.terms(costs, needed)
    everything = Footprint.of(plan.chunks)

    def changed(costs: Costs, missing: Collection[str]) -> int:
        return everything.among(missing).least(costs)

    known, least = _remedies(plan, changed, room, gpus)
    where = f"of GPU memory on each of {gpus} GPUs" if gpus > 1 else "of GPU memory"
    text = (
        f"a task of node {footprint.largest(costs)[0]!r} needs {gigabytes(needed)} {where} "
        f"(projected, with what stays there: {_list(terms)}), but a GPU has {gigabytes(devices.memory)}, "
        f"{gigabytes(CONTEXT)} of them for CUDA itself: {_fitting(known)}"
    )
    if known == []:
        text += f" ({gigabytes(least)} at the least): take GPUs with more memory"
    more = next((each for each in fitting(footprint, plan, devices) if each > gpus), None)
    if more:
        text += f"; or use {more} GPUs per worker (--gpus-per-worker {more})"
    return Shortage(text, tuple(known or ()))


def _remedies(
    plan: Plan, needed: Callable[[Costs, Collection[str]], int], room: int, gpus: int = 1
) -> tuple[list[Changes] | None, int]:
    """Changes of which each makes a plan fit, None where nothing may be changed; and the least bytes.

    needed: bytes with other costs, where chunks of these nodes are missing. gpus: of each worker.
    """
    if not (plan.economies and plan.economies.values):
        return None, 0
    missing = {chunk.node.name for chunk in plan.missing}
    keys = node_keys(dict.fromkeys(chunk.node for chunk in plan.everything), plan.backend)

    def of_workflow(workflow: Workflow) -> int:
        nodes = workflow.nodes.values()
        others = {name for name, key in node_keys(nodes, plan.backend).items() if key != keys.get(name)}
        return needed({node.name: node.cost.on_each(gpus) for node in nodes}, missing | others)

    return _Search(plan.economies, of_workflow, room).remedies()


@dataclass(frozen=True)
class _Search:
    """Search for changes with which a workflow needs no more than there is room.

    needed: bytes that the plan of a workflow needs.
    """

    economies: Economies
    needed: Callable[[Workflow], int]
    room: int
    _known: dict[tuple[tuple[str, Any], ...], int] = field(default_factory=dict)

    def remedies(self) -> tuple[list[Changes], int]:
        """Every single change that fits, or one of several keys together where none does alone.

        Of each key the value that takes most and still fits. And the least bytes, where nothing fits.
        """
        if alone := [one for key in self.economies.values for one in self._first_fitting({}, key)]:
            return alone, self.room
        together = self._together()
        if self._bytes(together) > self.room:
            return [], self._bytes(together)
        # of each as little as is needed: of the last, which alter most, first
        for key in reversed(list(together)):
            others = {name: value for name, value in together.items() if name != key}
            fits = [others] if self._bytes(others) <= self.room else self._first_fitting(others, key)
            together = self._ordered(fits[0])
        return [together], self.room

    def _bytes(self, changes: Changes) -> int:
        """Bytes that a workflow needs; those that cannot be need more than there is."""
        changes = self._ordered(changes)
        key = tuple(changes.items())
        if key not in self._known:
            try:
                self._known[key] = self.needed(self.economies.workflow(changes))
            except InputError:
                self._known[key] = 2**63
        return self._known[key]

    def _ordered(self, changes: Changes) -> Changes:
        return {name: changes[name] for name in self.economies.values if name in changes}

    def _first_fitting(self, others: Changes, key: str) -> Sequence[Changes]:
        """The first value of a key that fits, beside other changes; nothing if none does."""
        values = self.economies.values[key]
        fits = lambda value: self._bytes({**others, key: value}) <= self.room  # noqa: E731
        position = bisect_left(values, True, key=fits)
        return [{**others, key: values[position]}] if position < len(values) else []

    def _together(self) -> Changes:
        """The last value of each key that takes less beside those before it, as far as that is needed."""
        changes: dict[str, Any] = {}
        for key, values in self.economies.values.items():
            if self._bytes(changes) > self.room and values:
                trial = {**changes, key: values[-1]}
                changes = trial if self._bytes(trial) < self._bytes(changes) else changes
        return changes


def _fitting(known: Sequence[Changes] | None) -> str:
    if known is None:
        return "make its blocks or chunks smaller"
    fits = f"it fits {'; or '.join(map(_words, known))}"
    return fits if known else "no smaller block, chunk or precision makes it fit"


def _words(changes: Changes) -> str:
    values = [f"`{key}: {value}`" for key, value in changes.items() if value is not None]
    absent = [f"`{key}`" for key, value in changes.items() if value is None]
    parts = (("with", values), ("without", absent))
    return " and ".join(f"{word} {' and '.join(names)}" for word, names in parts if names)


def _list(terms: list[DeviceTerm]) -> str:
    named = [f"{term.term} {gigabytes(term.bytes)}" for term in islice(terms, NAMED_TERMS)]
    return ", ".join(named) + (", and smaller terms" if len(terms) > NAMED_TERMS else "")


def device_projection(plan: Plan, cluster: Cluster) -> str:
    """Text for people on the memory that the plan takes on each GPU, with a table of what it is made of.

    Empty without GPUs or figures.
    """
    devices, gpus = cluster.devices, cluster.gpus_per_worker
    if not (devices or cluster.backend == "cuda") or not (terms := device_terms(plan, devices, gpus)):
        return ""
    needed = sum(term.bytes for term in terms)
    shared = f", {gpus} of which share a lattice" if gpus > 1 else ""
    if devices:
        head = f"projected: {gigabytes(needed)} on each GPU of {gigabytes(devices.memory)}{shared}"
    else:
        head = (
            f"projected: at least {gigabytes(needed)} on each GPU{shared}, whose memory is not known here: "
            "--set cluster.gpu_memory=80GB says it"
        )
    return "\n".join([head, *_table(terms, needed)])


def _table(terms: list[DeviceTerm], total: int) -> list[str]:
    """Lines of the terms that are not negligible."""
    shown = [term for term in terms if term.bytes >= SHOWN_SHARE * total]
    rows = [
        [term.term, term.node, f"{term.bytes / 1e9:.3f}", f"{100 * term.bytes / total:.0f} %"]
        for term in shown
    ]
    return text_table(["on the GPU", "of", "GB", "share"], rows, left=(0, 1))


def check_gpus_per_worker(plan: Plan, cluster: Cluster) -> None:
    """Raise InputError where the GPUs of a worker cannot share what a missing chunk needs."""
    if cluster.gpus_per_worker > 1:
        for shares in sorted(_shares(plan.missing), key=lambda shares: shares.most):
            shares.check(cluster.gpus_per_worker)


def fitting(footprint: Footprint, plan: Plan, devices: Devices) -> Iterator[int]:
    """Numbers of GPUs per worker on which every task fits, ascending."""
    if not (shared := _shares(plan.missing)):
        return
    for gpus in _candidates(devices):
        each = footprint.least(costs_of(plan, gpus))
        if gpus <= min(shares.most for shares in shared) and each <= devices.memory - CONTEXT:
            yield gpus


@dataclass(frozen=True)
class Advice:
    """Numbers of GPUs per worker for a plan: the least that fits, the fastest by a model, both in words."""

    least: int
    fastest: int
    text: str


def gpus_advice(plan: Plan, cluster: Cluster) -> Advice | None:
    """Advice on the GPUs of a worker; None where nothing can be chosen, or nothing fits."""
    devices, footprint = cluster.devices, Footprint.of(plan.missing)
    if devices is None or devices.together < 2 or not footprint.least(costs_of(plan)):
        return None
    fits = list(fitting(footprint, plan, devices))
    if not fits:
        return None
    tasks, count = widest_level(plan_tasks(plan)), devices.count
    fastest = max(fits, key=lambda gpus: (min(tasks, count // gpus or 1) * speed(gpus), -gpus))
    if fastest == fits[0]:
        said = f"GPUs per worker: {fastest} is the least that fits, and the fastest"
    else:
        said = f"GPUs per worker: {fits[0]} is the least that fits, {fastest} the fastest"
    advised = "" if fastest == cluster.gpus_per_worker else f" (--gpus-per-worker {fastest})"
    why = (
        f"{counted(tasks, 'task')} can run side by side on {counted(count, 'GPU')}, and two GPUs on one "
        f"lattice are {TWICE:g} times as fast as one"
    )
    return Advice(fits[0], fastest, f"{said}{advised}: {why}")


def speed(gpus: int) -> float:
    """Speed of GPUs that share a lattice against one: what two lose, each further one loses again."""
    return gpus / (1 + (2 / TWICE - 1) * (gpus - 1))


def _candidates(devices: Devices) -> Iterable[int]:
    if not devices.together:
        return USUAL
    return [gpus for gpus in range(1, devices.together + 1) if devices.together % gpus == 0]


def _shares(chunks: Iterable[Chunk]) -> list[Shares]:
    """How GPUs share what tasks hold on them."""
    costs = {chunk.node.name: chunk.node.cost for chunk in chunks}
    return [cost.shares for cost in costs.values() if cost.shares and cost.device_memory]
