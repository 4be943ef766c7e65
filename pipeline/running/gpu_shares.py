"""The number of GPUs that each worker should own for a plan: the fewest that fit, and the fastest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.declare.node import Shares
from pipeline.declare.text import counted
from pipeline.planning.chunk import Chunk
from pipeline.planning.plan import Plan
from pipeline.running.clusters import Cluster, Devices
from pipeline.running.footprint import CONTEXT, Footprint, costs_of
from pipeline.running.graph import plan_tasks, widest_level

USUAL = (1, 2, 4, 8, 16)
"""GPUs of a worker that are proposed where those of a machine are not known."""

TWICE = 1.86
"""Speed of two GPUs that share their tasks against one, as measured (docs/scaling.md)."""


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
