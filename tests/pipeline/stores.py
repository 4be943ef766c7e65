"""Small stores that are written without a cluster, for tests that move them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import numpy as np
import toy_stages as toys

from pipeline import Place, Store, Workflow, plan
from pipeline.planning.history import keep_plan
from pipeline.planning.workflow import Source
from pipeline.running.event_log import EventLog
from pipeline.store.ledger import Ledger, LedgerEvent
from pipeline.worker.events import Event, EventKind


def demo(configs: str, noise: int = 4, mass: float = 0.5) -> Workflow:
    """A workflow of fields, loops and an average, on configurations of one letter each."""
    source = Source(f"configs: {configs}\n", "/there/demo.yaml", "/there")
    w = Workflow("demo", {"ensemble": "toy", "configurations": configs}, source)
    field = w.add(toys.field, place=Place(over={"config": list(configs)}))
    place = Place(over={"noise": range(noise)}, chunk={"noise": 2})
    w.add(toys.mean, w.add(toys.loops, field, place=place, mass=mass))
    return w


def filled(
    folder: Path,
    workflow: Workflow,
    *,
    run: str,
    jobs: Iterable[str] = (),
    large: str = "field",
    device: str = "cpu",
) -> Store:
    """A store with everything that a workflow wants; numbers are made of the keys.

    Chunks of the stage `large` are folders. The history has one run, the ledger one entry for each job.
    """
    store = Store(folder)
    store.create()
    planned = plan(workflow, store)
    for chunk in planned.missing:
        stage = chunk.node.stage.name
        seed = int(sha256(chunk.key.encode()).hexdigest()[:8], 16)
        outputs = chunk.node.stage.outputs
        at = chunk.coordinates
        shapes = {out.name: tuple(len(at[dim]) if dim in at else 4 for dim in out.dims) for out in outputs}
        arrays = {name: np.random.default_rng(seed).normal(size=shape) for name, shape in shapes.items()}
        dims = {out.name: tuple(out.dims) for out in outputs}
        at = {dim: list(values) for dim, values in chunk.coordinates.items()}
        code = {"quarkline": "0.1.0", "commit": "abc", "python": "3.11", "numpy": "2"}
        record = {"coordinates": at, "parameters": dict(chunk.node.parameters), "code": code}
        record |= {"version": "1", "backend": "cpu", "host": "testhost", "seconds": 2.0, "joules": None}
        record |= {"finished": "2026-11-20T10:00:00", "statistics": {}, "device": device}
        pieces = {name: {dims[name][0]: 2} for name in arrays} if stage == large else None
        store.commit(stage, chunk.key, arrays, dims, record, pieces)
    keep_plan(store, planned)
    with EventLog(store, run) as log:
        log(Event(EventKind.RUN_STARTED, run=run, workflow="demo", missing={"field": 1}))
        log(Event(EventKind.RUN_ENDED, more={"status": 0, "seconds": 9.0, "states": {}}))
    for job in jobs:
        facts = {"chain": "1", "seconds": 60.0, "commits": 3, "missing": 0, "reason": "done"}
        Ledger(store).add(LedgerEvent.ENDED, job=job, node_seconds=120.0, joules=None, **facts)
    return store


def digests(store: Store) -> dict[str, dict[str, str]]:
    """Digests of all arrays of all chunks, by stage and key."""
    return {
        f"{stage}/{key}": {array: of["digest"] for array, of in store.record(stage, key)["arrays"].items()}
        for stage in store.stages()
        for key in store.keys(stage)
    }


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file in a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
