"""Seconds that a plan's nodes take, each on the machine that it would run on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import reduce

from pipeline.declare.node import Node
from pipeline.planning.plan import Plan
from pipeline.reading.forecast.kernels import OUTSIDE
from pipeline.reading.forecast.model import Estimate, Model, added
from pipeline.reading.forecast.power import Regimes
from pipeline.reading.forecast.samples import Machine
from pipeline.running.graph import COMMIT

COMMITTED = 300e6
"""Bytes a second that commits of large chunks write, on a local disk."""

KERNELS = 0.3
"""Of the logarithm of the seconds in which kernels are compiled."""

BESIDE = 0.3
"""Of the logarithm of the seconds of a chunk beside its stages."""


class NodeTimes:
    """Seconds of a plan's nodes, by name.

    A simulated run asks for those of one node's own part of a chunk after the other (`seconds`, `overhead`).
    They are added up: behind it, `spent` are those of all missing chunks of a node.

    counts: missing chunks. machines: that nodes run on.
    """

    def __init__(self, plan: Plan, model: Model, machines: Mapping[str, Machine]) -> None:
        self.model = model
        self.nodes = {chunk.node.name: chunk.node for chunk in plan.everything}
        self.counts = Counter(chunk.node.name for chunk in plan.missing)
        self.machines = {
            name: machines[backend] for name, backend in _backends(self.nodes, plan.backend).items()
        }
        self._estimates: dict[tuple[str, bool], tuple[Estimate, Regimes]] = {}
        self._spent, self._worked = dict.fromkeys(self.nodes, 0.0), dict.fromkeys(self.nodes, Regimes())
        self._sigmas = dict.fromkeys(self.nodes, 0.0)

    def seconds(self, name: str, first: bool) -> float:
        """Seconds of a node's own part of a chunk, its process's first or a later one; they are added up."""
        each, regimes = self._estimate(name, first)
        self._spent[name] += each.value
        self._worked[name] = self._worked[name].plus(regimes)
        self._sigmas[name] = each.sigma
        return each.value

    def overhead(self, name: str, opening: bool) -> float:
        """Seconds of a chunk beside its stages; opening: it is the first of its process."""
        each = self._beside(name) + COMMIT + self.nodes[name].cost.stored / COMMITTED
        if not opening:
            return each
        machine = self.machines[name]
        return each + self.model.opening(machine) + self.model.kernels_of(OUTSIDE, machine, ()).seconds

    def spent(self, name: str) -> tuple[Estimate, Regimes]:
        """Seconds of a node's missing chunks, and of them those in which a device is at work.

        What transient inputs take is shared by the nodes that they are made for, by numbers of chunks.
        """
        shares = {part: self._share(part, name) for part in (name, *_transient_names(self.nodes[name]))}
        parts = [Estimate(share * self._spent[part], self._sigmas[part]) for part, share in shares.items()]
        beside = Estimate(self.counts[name] * self._beside(name), BESIDE)
        regimes = reduce(Regimes.plus, (self._worked[part].times(share) for part, share in shares.items()))
        return added([*parts, beside]), regimes

    def kernel_bytes(self, machine: Machine) -> float:
        """Bytes on the host of a process that has the kernels of all nodes of a machine."""
        return sum(
            self.model.kernels_of(node.stage.name, machine, node.cost.work).nbytes
            for name, node in self.nodes.items()
            if self.machines[name] == machine
        )

    def _estimate(self, name: str, first: bool) -> tuple[Estimate, Regimes]:
        """Seconds of a node's own part of a chunk, and those of them in which a device is at work."""
        if (name, first) not in self._estimates:
            model, machine, node = self.model, self.machines[name], self.nodes[name]
            stage, work = node.stage.name, node.cost.work
            seconds = model.seconds(stage, machine, work, first)
            kernels = model.kernels_of(stage, machine, work).seconds if first else 0.0
            both = added([seconds, Estimate(kernels, KERNELS)])
            self._estimates[name, first] = both, model.regimes(stage, machine, work)
        return self._estimates[name, first]

    def _beside(self, name: str) -> float:
        return self.model.beside(self.nodes[name].stage.name, self.nodes[name].cost)

    def _share(self, part: str, consumer: str) -> float:
        """Share of a part that is a consumer's: all of its own, of a transient input by numbers of chunks."""
        if part == consumer:
            return 1.0
        users = {name for name in self.counts if part in _transient_names(self.nodes[name])}
        return self.counts[consumer] / sum(self.counts[name] for name in users)


def _transient_names(node: Node) -> list[str]:
    """Names of a node's transient inputs, those of inputs among them."""
    names: list[str] = []
    for source in node.inputs:
        if source.stage.transient:
            names += [source.name, *_transient_names(source)]
    return list(dict.fromkeys(names))


def _backends(nodes: Mapping[str, Node], cluster: str) -> dict[str, str]:
    """Backend that each node runs on: of a transient one that asks for no device, its consumers'."""
    consumers: dict[str, str] = {}
    for node in nodes.values():
        if not node.stage.transient:
            for name in _transient_names(node):
                consumers[name] = max(consumers.get(name, "cpu"), node.stage.backend(cluster))
    return {
        name: consumers.get(name, "cpu")
        if node.stage.transient and not node.stage.resources.device
        else node.stage.backend(cluster)
        for name, node in nodes.items()
    }
