"""Time and memory of plans, task graphs and `status` for workflows of 10^3 to 10^6 chunks.

    python tests/benchmarks/many_chunks.py [--chunks 1000 10000 100000 1000000]

Configurations x noise chunks of a toy stage over one gauge field each, an empty store, a process of its own
for each number. Megabytes are what the process had at most, interpreter and imports included.
"""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isqrt
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Dims, Place, Store, Workflow, plan, stage
from pipeline.planning.manifest_files import write_manifest
from pipeline.reading.status import status
from pipeline.running.event_log import EventLog
from pipeline.running.graph import dask_graph, plan_tasks, submission_order
from pipeline.running.session import OUTSTANDING
from pipeline.worker.events import ChunkState, Event, EventKind, chunk_identity
from pipeline.worker.sources import sources_of
from pipeline.worker.work import RunContext
from script import PrintedTable, arguments_of


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


@dataclass
class Watch:
    """Seconds of each step of this process, and the megabytes that it had at most by its end."""

    began: float = field(default_factory=time.perf_counter)
    figures: dict[str, float] = field(default_factory=dict)

    def note(self, step: str) -> None:
        """A step has ended, another begins."""
        self.figures[f"{step} s"] = time.perf_counter() - self.began
        self.figures[f"{step} MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.began = time.perf_counter()


def first_run(chunks: int, store: Store) -> dict[str, float]:
    """Steps of a driver before its first chunk begins, in an empty store."""
    store.create()
    watch = Watch()
    planned = plan(workflow_of(chunks), store)
    watch.note("plan")
    write_manifest(store, planned.workflow, planned.backend, planned.everything, planned.about)
    watch.note("manifest")
    tasks = submission_order(plan_tasks(planned))
    watch.note("tasks")
    context = RunContext(store, "run", "cpu", 0, sources_of([]))
    graph = dask_graph(tasks[:OUTSTANDING], context)
    sent = len(pickle.dumps(dict(graph.to_dict())))
    watch.note("piece")
    return {**watch.figures, "sent MB": sent / 2**20, "chunks": len(planned.everything)}


def later(chunks: int, store: Store) -> dict[str, float]:
    """`status` and a plan where every chunk but the last is in the store."""
    watch = Watch()
    status(store)
    watch.note("status")
    assert len(plan(workflow_of(chunks), store).missing) == 1
    watch.note("replan")
    return watch.figures


def fill(chunks: int, store: Store) -> dict[str, float]:
    """Stand-ins for all chunks but the last, and the log of their run.

    A plan asks whether the files are there and not empty.
    """
    with EventLog(store, "run") as log:
        for chunk in plan(workflow_of(chunks), store).everything[:-1]:
            path = store.location(chunk.node.stage.name, chunk.key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
            about = chunk_identity(chunk.node.name, chunk.node.stage.name, chunk.key, chunk.coordinates)
            for kind in (EventKind.STARTED, ChunkState.DONE):
                log(Event(kind, worker="tls://127.0.0.1:40000", **about))
    return {}


STEPS: dict[str, Callable[[int, Store], dict[str, float]]] = {
    "first_run": first_run,
    "fill": fill,
    "later": later,
}
COLUMNS = ("plan", "manifest", "tasks", "piece", "status", "replan")


def main() -> None:
    """Print a line for each number of chunks, or the figures of one step as a process of its own."""
    counts = [1000, 10_000, 100_000, 1_000_000]
    arguments = arguments_of(__doc__, options={"chunks": counts, "step": "", "store": "."})
    if arguments.step:
        print(json.dumps(STEPS[arguments.step](int(arguments.chunks[0]), Store(arguments.store))))
        return
    heads = [f"{name} {unit}" for unit in ("s", "MB") for name in COLUMNS]
    table = PrintedTable("chunks", *heads, "sent MB")
    for chunks in arguments.chunks:
        with tempfile.TemporaryDirectory(dir=arguments.store) as folder:
            figures: dict[str, float] = {}
            for step in STEPS:
                command = [sys.executable, __file__, "--step", step]
                command += ["--chunks", str(chunks), "--store", f"{folder}/store"]
                figures |= json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            times, sizes = ([figures[f"{name} {unit}"] for name in COLUMNS] for unit in ("s", "MB"))
            table.add(int(figures["chunks"]), *times, *sizes, figures["sent MB"])


if __name__ == "__main__":
    main()
