"""Whether a plan's tasks fit into the memory of the machine that would run them."""

from __future__ import annotations

from pipeline.clusters import Cluster
from pipeline.explain import size
from pipeline.planning import Plan


def shortage(plan: Plan, cluster: Cluster) -> str:
    """What does not fit, with the remedy, for people; empty if all fits or either number is unknown."""
    limit = cluster.memory_limit
    if limit is None or plan.memory <= limit:
        return ""
    largest = max(plan.missing, key=lambda chunk: chunk.node.memory).node
    return (
        f"a task of node {largest.name!r} needs {size(largest.memory)} of memory (projected), but this "
        f"machine has {size(limit)}: make its blocks or chunks smaller, or use a cluster with more memory"
    )
