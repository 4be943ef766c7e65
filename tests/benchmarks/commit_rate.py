"""Number of durable commits a second that the engine makes.

    python tests/benchmarks/commit_rate.py [--folder FOLDER]

One small array and its record per chunk, every file and folder flushed. Figures: the store alone in one
process, and whole runs (plan, Dask, commit) from the start of the first chunk to the end of the last: a first
run with one task per chunk, and a second with chunks batched as the first one's timings suggest.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from pipeline import At, Dims, Place, Store, Workflow, plan, run, stage
from pipeline.running.clusters.local import Local
from script import arguments_of

COMMITS = 600


class Small(NamedTuple):
    """Numbers of one direction and time each, few enough to cost nothing."""

    values: Annotated[np.ndarray, Dims("direction", "time")]


@stage(version="1", over=("config",))
def small(*, at: At) -> Small:
    """4 x 16 numbers, next to no work."""
    return Small(np.full((4, 16), float(at.one("config"))))


def store_alone(folder: Path) -> float:
    """Commits a second of one process."""
    store = Store(folder)
    store.create()
    began = time.perf_counter()
    for k in range(COMMITS):
        arrays = {"values": np.full((4, 16), float(k))}
        store.commit("small", f"{k:064x}", arrays, {"values": ("direction", "time")}, {"seconds": 0.0})
    return COMMITS / (time.perf_counter() - began)


def whole_run(store: Store, configs: Sequence[int], workers: int) -> float:
    """Commits a second of a run, without the start of its workers."""
    workflow = Workflow("commit-rate")
    workflow.add(small, place=Place(over={"config": configs}))
    events: list[dict[str, Any]] = []
    outcome = run(plan(workflow, store), store, cluster=Local(workers=workers), listener=events.append)
    assert not outcome.exit_status, outcome.table()
    first = next(event["time"] for event in events if event["event"] == "started")
    last = max(event["time"] for event in events if event["event"] == "done")
    return len(configs) / (last - first)


def main() -> None:
    """Print the figures of a store in the folder that the arguments name."""
    with tempfile.TemporaryDirectory(dir=arguments_of(__doc__, options={"folder": "."}).folder) as scratch:
        folder = Path(scratch)
        print(f"store alone, 1 process:      {store_alone(folder / 'alone'):6.0f} commits/s")
        for workers in (1, 2):
            store = Store(folder / f"run{workers}")
            single = whole_run(store, range(COMMITS), workers)
            batched = whole_run(store, range(COMMITS, 2 * COMMITS), workers)
            print(f"whole run, {workers} worker(s): {single:6.0f} commits/s, {batched:.0f} batched")


if __name__ == "__main__":
    main()
