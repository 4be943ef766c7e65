"""Time and memory of plans, task graphs and `status` for workflows of 10^3 to 10^6 chunks.

    python -m workflows.benchmarks.many_chunks [--chunks 1000,10000,100000,1000000]

Configurations x noise chunks of a toy stage over one gauge field each, an empty store, a process of its own
for each number. Megabytes are what the process had at most, interpreter and imports included.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import isqrt
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Dims, Place, Store, Workflow, plan, stage
from pipeline.planning.manifest import write_manifest
from pipeline.reading.status import status
from pipeline.running.graph import dask_graph, plan_tasks
from pipeline.worker.work import RunContext
from workflows.benchmarks.script import PrintedTable, arguments_of


class Loops(NamedTuple):
    """Numbers of one direction and time each."""

    values: Annotated[np.ndarray, Dims("noise", "time")]


class Links(NamedTuple):
    """A few numbers of a configuration."""

    links: Annotated[np.ndarray, Dims("site")]


@stage(version="1", over=("config",))
def links(*, at: At) -> Links:
    """Eight numbers."""
    return Links(np.full(8, float(len(str(at.one("config"))))))


@stage(version="1", over=("config", "noise"))
def loops(links: Links, *, at: At, mass: float) -> Loops:
    """One number for each noise."""
    return Loops(np.full((len(at["noise"]), 1), mass * links.links.sum()))


def workflow_of(chunks: int) -> Workflow:
    """About so many chunks: the square root of them in configurations and in noise chunks."""
    side = isqrt(chunks)
    workflow = Workflow("many-chunks")
    configs = workflow.add(links, place=Place(over={"config": [f"conf.{k:05d}" for k in range(side)]}))
    workflow.add(loops, configs, place=Place(over={"noise": range(side)}), mass=0.1)
    return workflow


def measured(chunks: int, folder: Path) -> dict[str, float]:
    """Seconds and megabytes of each step for one number of chunks."""
    figures: dict[str, float] = {}

    def timed(name: str, step: Callable[[], object]) -> object:
        began = time.perf_counter()
        result = step()
        figures[f"{name} s"] = time.perf_counter() - began
        figures[f"{name} MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return result

    store = Store(folder / "store")
    store.create()
    workflow = workflow_of(chunks)
    planned = timed("plan", lambda: plan(workflow, store))
    figures["chunks"] = len(planned.everything)
    timed("manifest", lambda: write_manifest(store, planned.workflow, "cpu", planned.everything))
    tasks = timed("tasks", lambda: plan_tasks(planned))
    return figures
