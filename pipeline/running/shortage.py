"""Comparison of a plan's tasks with the memory of the machine that would run them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from dask.utils import format_bytes

from pipeline.declare.node import Node
from pipeline.planning.chunk import Chunk
from pipeline.planning.plan import Plan
from pipeline.running.clusters import Cluster, Devices
from pipeline.worker.resident import DEVICE_SHARE

CONTEXT = 700_000_000
"""Bytes of a GPU that CUDA's context and the compiled kernels take beside all fields, measured on an H200."""


def shortage(plan: Plan, cluster: Cluster) -> str:
    """A sentence on what does not fit, with the remedy; empty if all fits or either number is unknown."""
    limit, devices = cluster.memory_limit, cluster.devices
    if limit is not None and plan.memory > limit:
        largest = max(plan.missing, key=lambda chunk: chunk.node.cost.memory).node
        return (
            f"a task of node {largest.name!r} needs {format_bytes(largest.cost.memory)} of memory "
            f"(projected), but this machine has {format_bytes(limit)}: {_remedy(largest, limit, False)}, "
            "or use a cluster with more memory"
        )
    if devices and (needed := device_memory(plan, devices)) > devices.memory - CONTEXT:
        largest = max(plan.missing, key=lambda chunk: chunk.node.cost.device_memory).node
        room = devices.memory - CONTEXT - (needed - largest.cost.device_memory)
        return (
            f"a task of node {largest.name!r} needs {format_bytes(needed)} of GPU memory (projected, with "
            f"what stays there), but a GPU of this machine has {format_bytes(devices.memory)}: "
            f"{_remedy(largest, room, True)}"
        )
    return ""


def _remedy(node: Node, available: int, on_device: bool) -> str:
    return node.cost.remedy(available, on_device) if node.cost.remedy else "make its blocks or chunks smaller"


def device_projection(plan: Plan, cluster: Cluster) -> str:
    """A line for people on the memory that the plan takes on each GPU; empty without GPUs or figures."""
    devices = cluster.devices
    if not (devices or cluster.backend == "cuda") or not (needed := device_memory(plan, devices)):
        return ""
    if devices is None:
        return f"projected: at least {format_bytes(needed)} on each GPU, whose memory is not known here"
    return f"projected: {format_bytes(needed)} on each GPU of {format_bytes(devices.memory)}"


def device_memory(plan: Plan, devices: Devices | None) -> int:
    """Bytes of a GPU that the largest missing task needs, beside all resident results that are kept there.

    Where the GPUs are not known, beside those that one task uses, which is the least.
    """
    with_its_own = (chunk.node.cost.device_memory + _taken(_resident([chunk])) for chunk in plan.missing)
    needed = max(with_its_own, default=0)
    if devices is None:
        return needed
    task = max((chunk.node.cost.device_memory for chunk in plan.missing), default=0)
    held = sorted((chunk.node.cost.device_memory for chunk in _resident(plan.missing)), reverse=True)
    mine = sum(held[: -(-len(held) // devices.count)])
    return max(needed, task + min(mine, int(DEVICE_SHARE * devices.memory)))


def _taken(chunks: Iterable[Chunk]) -> int:
    return sum(chunk.node.cost.device_memory for chunk in chunks)


def _resident(chunks: Iterable[Chunk]) -> Iterable[Chunk]:
    """The transient, resident results that chunks are computed from, each once."""
    return {source.key: source for chunk in chunks for source in _sources(chunk)}.values()


def _sources(chunk: Chunk) -> Iterator[Chunk]:
    for source in chain(*chunk.inputs):
        if source.node.stage.transient:
            if source.node.stage.resident:
                yield source
            yield from _sources(source)
