"""Comparison of a plan's tasks with the memory of the machine that would run them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice

from dask.utils import format_bytes

from pipeline.declare.text import gigabytes, text_table
from pipeline.planning.key import node_keys
from pipeline.planning.plan import Plan
from pipeline.planning.workflow import Workflow
from pipeline.running.clusters import Cluster, Devices
from pipeline.running.footprint import (
    CONTEXT,
    Costs,
    Footprint,
    Term,
    costs_of,
    device_terms,
)
from pipeline.running.gpu_shares import fitting
from pipeline.running.remedies import Changes, Remedies, remedies

NAMED_TERMS = 4
"""Terms that a sentence names, the largest."""
SHOWN_SHARE = 0.001
"""Of the whole: a table leaves smaller terms out."""


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

    known = _remedies(plan, needed, limit)
    return Shortage(
        f"a task of node {largest.name!r} needs {format_bytes(largest.cost.memory)} of memory (projected), "
        f"but this machine has {format_bytes(limit)}: {_fitting(known)}, or use a cluster with more memory",
        known.changes if known else (),
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

    known = _remedies(plan, changed, room, gpus)
    where = f"of GPU memory on each of {gpus} GPUs" if gpus > 1 else "of GPU memory"
    text = (
        f"a task of node {footprint.largest(costs)!r} needs {gigabytes(needed)} {where} "
        f"(projected, with what stays there: {_list(terms)}), but a GPU has {gigabytes(devices.memory)}, "
        f"{gigabytes(CONTEXT)} of them for CUDA itself: {_fitting(known)}"
    )
    if known and not known.changes:
        text += f" ({gigabytes(known.least)} at the least): take GPUs with more memory"
    more = next((each for each in fitting(footprint, plan, devices) if each > gpus), None)
    if more:
        text += f"; or take {more} GPUs per worker (--gpus-per-worker {more})"
    return Shortage(text, known.changes if known else ())


def _remedies(
    plan: Plan, needed: Callable[[Costs, Collection[str]], int], room: int, gpus: int = 1
) -> Remedies | None:
    """Remedies of a plan; needed: bytes with other costs, where chunks of these nodes are missing.

    gpus: of each worker.
    """
    if not (plan.economies and plan.economies.values):
        return None
    missing = {chunk.node.name for chunk in plan.missing}
    keys = node_keys(dict.fromkeys(chunk.node for chunk in plan.everything), plan.backend)

    def of_workflow(workflow: Workflow) -> int:
        nodes = workflow.nodes.values()
        others = {name for name, key in node_keys(nodes, plan.backend).items() if key != keys.get(name)}
        return needed({node.name: node.cost.on_each(gpus) for node in nodes}, missing | others)

    return remedies(plan.economies, of_workflow, room)


def _fitting(known: Remedies | None) -> str:
    if known is None:
        return "make its blocks or chunks smaller"
    return f"it fits {known.text}" if known.changes else "no smaller block, chunk or precision makes it fit"


def _list(terms: list[Term]) -> str:
    named = [f"{term.name} {gigabytes(term.nbytes)}" for term in islice(terms, NAMED_TERMS)]
    return ", ".join(named) + (", and less" if len(terms) > NAMED_TERMS else "")


def device_projection(plan: Plan, cluster: Cluster) -> str:
    """Text for people on the memory that the plan takes on each GPU, with a table of what it is made of.

    Empty without GPUs or figures.
    """
    devices, gpus = cluster.devices, cluster.gpus_per_worker
    if not (devices or cluster.backend == "cuda") or not (terms := device_terms(plan, devices, gpus)):
        return ""
    needed = sum(term.nbytes for term in terms)
    shared = f", {gpus} of which share a lattice" if gpus > 1 else ""
    if devices:
        head = f"projected: {gigabytes(needed)} on each GPU of {gigabytes(devices.memory)}{shared}"
    else:
        head = (
            f"projected: at least {gigabytes(needed)} on each GPU{shared}, whose memory is not known here: "
            "--set cluster.gpu_memory=80GB says it"
        )
    return "\n".join([head, *_table(terms, needed)])


def _table(terms: list[Term], total: int) -> list[str]:
    """Lines of the terms that are not negligible."""
    shown = [term for term in terms if term.nbytes >= SHOWN_SHARE * total]
    rows = [
        [term.name, term.node, f"{term.nbytes / 1e9:.3f}", f"{100 * term.nbytes / total:.0f} %"]
        for term in shown
    ]
    return text_table(["on the GPU", "of", "GB", "share"], rows, left=(0, 1))
