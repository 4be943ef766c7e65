"""Seconds that a plan's nodes take, each on the machine that it would run on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from pipeline.planning.plan import Plan
from pipeline.reading.forecast.estimate import Estimate, Numbers, added
from pipeline.reading.forecast.kernels import OUTSIDE
from pipeline.reading.forecast.model import Model
from pipeline.reading.forecast.samples import Machine
from pipeline.running.graph import COMMIT

COMMITTED = 300e6
"""Bytes a second that commits of large chunks write, on a local disk."""

KERNELS, BESIDE = 0.3, 0.3
"""Of the logarithms of the seconds for kernels, and of those of a chunk beside its stages."""


class NodeTimes:
    """Seconds of a plan's nodes, by name.

    A simulated run asks for those of one node's own part of a chunk after the other (`seconds`, `overhead`).
    They are counted: behind it, `spent` are those of all missing chunks of a node.

    counts: missing chunks. fused: nodes that a task of each computes, itself among them. machines: that they
    run on.
    """

    def __init__(self, plan: Plan, model: Model, machines: Mapping[str, Machine]) -> None:
        self.model = model
        self.nodes = {chunk.node.name: chunk.node for chunk in plan.everything}
        self.counts = Counter(chunk.node.name for chunk in plan.missing)
        self.fused = {name: {each.name: each for each in node.fused()} for name, node in self.nodes.items()}
        self.machines = {name: machines[self._backend(name, plan.backend)] for name in self.nodes}
        self._beside = {name: model.beside(node.stage.name, node.cost) for name, node in self.nodes.items()}
        self._runs: Counter[tuple[str, bool]] = Counter()
        self._estimates: dict[tuple[str, bool], Estimate] = {}

    def seconds(self, name: str, first: bool) -> float:
        """Seconds of a node's own part of a chunk, its process's first or a later one; they are counted."""
        self._runs[name, first] += 1
        return self._estimate(name, first).value

    def overhead(self, name: str, opening: bool) -> float:
        """Seconds of a chunk beside its stages; opening: it is the first of its process."""
        each = self._beside[name] + COMMIT + self.nodes[name].cost.stored / COMMITTED
        if not opening:
            return each
        machine = self.machines[name]
        return each + self.model.opening(machine) + self.model.kernels_of(OUTSIDE, machine, ()).seconds

    def spent(self, name: str) -> tuple[Estimate, Numbers]:
        """Seconds of a node's missing chunks, and of them those in which a device is at work.

        What transient inputs take is shared by the nodes that they are made for, by numbers of chunks.
        """
        parts, worked = [Estimate(self.counts[name] * self._beside[name], BESIDE)], np.zeros(2)
        for part, node in self.fused[name].items():
            share = self.counts[name] / sum(n for each, n in self.counts.items() if part in self.fused[each])
            later, first = self._runs[part, False], self._runs[part, True]
            seconds = later * self._estimate(part, False).value + first * self._estimate(part, True).value
            parts.append(Estimate(share * seconds, self._estimate(part, not later).sigma))
            at_work = self.model.worked(node.stage.name, self.machines[part], node.cost.work)
            worked = worked + share * (later + first) * at_work
        return added(parts), worked

    def kernel_bytes(self, machine: Machine) -> float:
        """Bytes on the host of a process that has the kernels of all nodes of a machine."""
        return sum(
            self.model.kernels_of(node.stage.name, machine, node.cost.work).nbytes
            for name, node in self.nodes.items()
            if self.machines[name] == machine
        )

    def _estimate(self, name: str, first: bool) -> Estimate:
        """Seconds of a node's own part of a chunk."""
        if (name, first) not in self._estimates:
            machine, node = self.machines[name], self.nodes[name]
            stage, work = node.stage.name, node.cost.work
            seconds = self.model.seconds(stage, machine, work, first)
            kernels = self.model.kernels_of(stage, machine, work).seconds if first else 0.0
            self._estimates[name, first] = added([seconds, Estimate(kernels, KERNELS)])
        return self._estimates[name, first]

    def _backend(self, name: str, cluster: str) -> str:
        """Backend that a node runs on: of a transient one that asks for no device, its consumers'."""
        node = self.nodes[name]
        if not node.stage.transient or node.stage.resources.device:
            return node.stage.backend(cluster)
        consumers = (each for each in self.nodes.values() if not each.stage.transient)
        return max((n.stage.backend(cluster) for n in consumers if name in self.fused[n.name]), default="cpu")
