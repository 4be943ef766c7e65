"""Dropping what no workflow reaches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError
from pipeline.explain import counted, size
from pipeline.lock import driver_lock
from pipeline.planning import plan
from pipeline.store import Store
from pipeline.workflow import Workflow

BACKENDS = ("cpu", "cuda")


@dataclass(frozen=True)
class Garbage:
    """Chunks (stage, key) that no workflow reaches, and the bytes that they take."""

    chunks: tuple[tuple[str, str], ...]
    kept: int
    nbytes: int
    removed: bool

    def __str__(self) -> str:
        verb = "removed" if self.removed else "would be removed"
        found = f"{counted(len(self.chunks), 'chunk')} ({size(self.nbytes)})" if self.chunks else "no chunk"
        return f"{found} {verb}, {self.kept} kept"


def collect_garbage(store: Store, workflows: Iterable[Workflow], *, dry_run: bool = False) -> Garbage:
    """Remove the chunks that none of the workflows reaches, on any backend, and what interrupted runs left.

    Raises:
        UserError: no workflow is given, there is no store, or a run is driving it.
    """
    reaching = list(workflows)
    if not reaching:
        raise UserError("collecting garbage needs the workflows whose results are to be kept")
    if not store.exists():
        raise UserError(f"there is no store at {store.path}")
    with driver_lock(store, "gc"):
        kept = {
            (chunk.node.stage.name, chunk.key)
            for workflow in reaching
            for backend in BACKENDS
            for chunk in plan(workflow, store, backend=backend).chunks
        }
        present = {(stage, key) for stage in store.stages() for key in store.keys(stage)}
        dropped = sorted(present - kept)
        nbytes = sum(_nbytes(store.location(stage, key)) for stage, key in dropped)
        if not dry_run:
            store.sweep()
            for stage, key in dropped:
                store.remove(stage, key)
    return Garbage(tuple(dropped), len(present) - len(dropped), nbytes, not dry_run)


def _nbytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
