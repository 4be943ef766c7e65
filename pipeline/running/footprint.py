"""Memory of a GPU that a plan's tasks take, and what it is made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from pipeline.declare.node import Cost
from pipeline.planning.chunk import Chunk
from pipeline.planning.plan import Plan
from pipeline.running.clusters import Devices
from pipeline.worker.resident import DEVICE_SHARE

CONTEXT = 700_000_000
"""Bytes of a GPU that CUDA's context and the compiled kernels take beside all fields, measured on an H200."""

KEPT = "kept of other configurations"
OTHER = "other"

Costs = Mapping[str, Cost]
"""By node."""


@dataclass(frozen=True)
class Term:
    """A part of what a GPU holds at once; node: that it is of, empty for what other tasks left there."""

    node: str
    name: str
    nbytes: int


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

    def largest(self, costs: Costs) -> str:
        """Node of that task."""
        return self._largest(costs)[0]

    def _largest(self, costs: Costs) -> tuple[str, tuple[str, ...]]:
        return max(self.tasks, key=lambda each: _sum(costs, each[0], *each[1]))

    def on_each(self, costs: Costs, devices: Devices) -> int:
        """Bytes of a GPU's pool at its largest, beside what is kept there of other tasks, too."""
        task = max((_sum(costs, name) for name, _ in self.tasks), default=0)
        held = sorted((_sum(costs, name) for name in self.resident), reverse=True)
        mine = sum(held[: -(-len(held) // devices.workers)])
        filled = task + min(mine, int(DEVICE_SHARE * devices.memory))
        return max(self.least(costs), min(filled, devices.memory - CONTEXT))

    def terms(self, costs: Costs, total: int) -> list[Term]:
        """Parts of the largest task, the largest first, and what is kept beside it; `total` bytes in all."""
        if not total:
            return []
        task, held = self._largest(costs)
        parts = [term for name in (task, *held) for term in _terms(name, costs.get(name, Cost()))]
        kept = Term("", KEPT, total - _sum(costs, task, *held))
        return sorted((part for part in (*parts, kept) if part.nbytes), key=lambda part: -part.nbytes)


def costs_of(plan: Plan, gpus: int = 1) -> dict[str, Cost]:
    """Cost of each node of a plan, on one of the GPUs of a worker that owns so many."""
    return {name: cost.on_each(gpus) for name, cost in _costs(plan).items()}


def _costs(plan: Plan) -> dict[str, Cost]:
    return {chunk.node.name: chunk.node.cost for chunk in plan.everything}


def device_terms(plan: Plan, devices: Devices | None, gpus_per_worker: int = 1) -> list[Term]:
    """Parts of the memory of a GPU that a plan takes, the largest first; none where no task has a figure.

    Where the GPUs are not known, of what the largest task takes. gpus_per_worker: where they are not known.
    """
    gpus = devices.per_worker if devices else gpus_per_worker
    footprint, costs = Footprint.of(plan.missing), costs_of(plan, gpus)
    return footprint.terms(
        costs, footprint.least(costs) if devices is None else footprint.on_each(costs, devices)
    )


def device_memory(plan: Plan, devices: Devices | None) -> int:
    """Bytes of these parts together."""
    return sum(term.nbytes for term in device_terms(plan, devices))


def _terms(node: str, cost: Cost) -> list[Term]:
    other = cost.device_memory - sum(cost.terms.values())
    return [Term(node, name, nbytes) for name, nbytes in (*cost.terms.items(), (OTHER, other))]


def _sum(costs: Costs, *names: str) -> int:
    return sum(costs[name].device_memory for name in names if name in costs)


def _names(chunks: Iterable[Chunk]) -> tuple[str, ...]:
    return tuple(sorted(chunk.node.name for chunk in chunks))


def _resident(chunks: Iterable[Chunk]) -> Iterable[Chunk]:
    """The transient, resident results that chunks are computed from, each once."""
    sources = chain.from_iterable(chunk.transient() for chunk in chunks)
    return {source.key: source for source in sources if source.node.stage.resident}.values()
