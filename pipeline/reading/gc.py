"""Dropping what no workflow reaches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dask.utils import format_bytes

from pipeline.declare.text import counted
from pipeline.planning.plan import plan
from pipeline.planning.workflow import Workflow
from pipeline.store.checkpoint import checkpoints, remove_checkpoint
from pipeline.store.durable import nbytes_of
from pipeline.store.lock import driver_lock
from pipeline.store.store import Store
from stages.errors import InputError

BACKENDS = ("cpu", "cuda")


@dataclass(frozen=True)
class Garbage:
    """Chunks (stage, key) that no workflow reaches, their checkpoints, and the bytes that they take."""

    chunks: tuple[tuple[str, str], ...]
    kept: int
    nbytes: int
    removed: bool
    checkpoints: int = 0

    def __str__(self) -> str:
        verb = "removed" if self.removed else "would be removed"
        text = counted(len(self.chunks), "chunk") if self.chunks else "no chunk"
        if self.checkpoints:
            text += f", {counted(self.checkpoints, 'checkpoint')}"
        if self.nbytes:
            text += f" ({format_bytes(self.nbytes)})"
        return f"{text} {verb}, {self.kept} kept"


def collect_garbage(store: Store, workflows: Iterable[Workflow], *, dry_run: bool = False) -> Garbage:
    """Remove the chunks that none of the workflows reaches, on any backend, and what interrupted runs left.

    Raises:
        InputError: no workflow is given, there is no store, or a run is driving it.
    """
    reaching = list(workflows)
    if not reaching:
        raise InputError("collecting garbage needs the workflows whose results are to be kept")
    if not store.exists():
        raise InputError(f"there is no store at {store.path}")
    with driver_lock(store, "gc"):
        reached = {
            (chunk.node.stage.name, chunk.key)
            for workflow in reaching
            for backend in BACKENDS
            for chunk in plan(workflow, store, backend=backend).chunks
        }
        present = {(stage, key) for stage in store.stages() for key in store.keys(stage)}
        dropped = sorted(present - reached)
        states = [f for f in checkpoints(store.checkpoints) if (f.parent.name, f.name) not in reached]
        nbytes = sum(map(nbytes_of, [*states, *(store.location(*chunk) for chunk in dropped)]))
        if not dry_run:
            store.sweep()
            for stage, key in dropped:
                store.remove(stage, key)
            for folder in states:
                remove_checkpoint(folder)
    return Garbage(tuple(dropped), len(present) - len(dropped), nbytes, not dry_run, len(states))
