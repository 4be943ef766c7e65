"""Dropping what no workflow reaches."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pipeline.declare.text import counted, format_bytes
from pipeline.planning.history import damaged_plans, forget, past_plans
from pipeline.planning.manifest import PART
from pipeline.planning.plan import plan
from pipeline.planning.workflow import Workflow
from pipeline.running.event_log import drop_old_runs
from pipeline.store.checkpoint import checkpoints, remove_checkpoint
from pipeline.store.durable import nbytes_of
from pipeline.store.lock import driver_lock
from pipeline.store.store import Store
from stages.base.errors import InputError

BACKENDS = ("cpu", "cuda")


@dataclass(frozen=True)
class Garbage:
    """Chunks (stage, key) that no workflow reaches, their checkpoints, and the bytes that they take."""

    chunks: tuple[tuple[str, str], ...]
    kept: int
    nbytes: int
    removed: bool
    """False where `--dry-run` only asked."""
    checkpoints: int = 0
    others: tuple[str, ...] = ()
    """Workflows that were run into the store, were not given, and lose chunks."""
    losses: dict[str, int] = field(default_factory=dict)
    """Chunks and checkpoints that each past plan loses, by its file and day."""
    damaged: tuple[str, ...] = ()
    """Files of plans that cannot be read: which chunks they want is not known."""
    foreign: tuple[str, ...] = ()
    """Files in the store that are none of its own; they are left alone."""

    def __str__(self) -> str:
        verb = "removed" if self.removed else "would be removed"
        text = counted(len(self.chunks), "chunk") if self.chunks else "no chunk"
        if self.checkpoints:
            text += f", {counted(self.checkpoints, 'checkpoint')}"
        if self.nbytes:
            text += f" ({format_bytes(self.nbytes)})"
        lines = [f"{text} {verb}, {self.kept} kept"]
        if self.others:
            lines.append(f"some of them belong to {', '.join(self.others)}, not given here")
        lines += [f"computed for {plan}: {number}" for plan, number in self.losses.items()]
        if self.damaged and (self.chunks or self.checkpoints):
            lines.append(f"damaged plans, whose chunks are not known: {', '.join(self.damaged)}")
        if self.foreign:
            lines.append(f"not files of the store, left untouched: {', '.join(self.foreign)}")
        return "\n".join(lines)


def collect_garbage(
    store: Store | str | os.PathLike[str],
    workflows: Iterable[Workflow],
    *,
    dry_run: bool = False,
    agree: Callable[[Garbage], None] = lambda garbage: None,
) -> Garbage:
    """Remove the chunks that none of the workflows reaches, on any backend, and what interrupted runs left.

    agree: called with what is to be removed, if any chunk or checkpoint is; nothing is removed if it raises.

    Raises:
        InputError: no workflow is given, there is no store, or a run is driving it.
    """
    reaching = list(workflows)
    if not reaching:
        raise InputError("collecting garbage needs the workflows whose results are to be kept")
    store = Store.existing(store)
    with driver_lock(store, "gc"):
        reached = {
            (chunk.node.stage.name, chunk.key)
            for workflow in reaching
            for backend in BACKENDS
            for chunk in plan(workflow, store, backend=backend).chunks
        }
        present = store.chunks()
        dropped = sorted(present - reached)
        states = [f for f in checkpoints(store.checkpoints) if (f.parent.name, f.name) not in reached]
        nbytes = sum(map(nbytes_of, [*states, *(store.location(*chunk) for chunk in dropped)]))
        losses, others = _losses(store, [*(key for _, key in dropped), *(folder.name for folder in states)])
        garbage = Garbage(
            chunks=tuple(dropped),
            kept=len(present) - len(dropped),
            nbytes=nbytes,
            removed=False,
            checkpoints=len(states),
            others=tuple(sorted(others - {workflow.name for workflow in reaching})),
            losses=losses,
            damaged=tuple(str(path.relative_to(store.path)) for path in damaged_plans(store)),
            foreign=tuple(str(path.relative_to(store.path)) for path in store.foreign()),
        )
        if not dry_run:
            if dropped or states:
                agree(garbage)
            store.sweep()
            from pipeline.store.arrival import sweep_arrivals

            sweep_arrivals(store)
            drop_old_runs(store)
            for stage, key in dropped:
                store.remove(stage, key)
            for folder in states:
                remove_checkpoint(folder)
            forget(store)
    return replace(garbage, removed=not dry_run)


def _losses(store: Store, lost: Sequence[str]) -> tuple[dict[str, int], set[str]]:
    """Number of lost keys by the past plan that wanted them, and the names of these workflows."""
    losses = Counter[str]()
    others, unknown = set[str](), set(lost)
    for past in past_plans(store):
        wanted = {key for key in lost if past.wants(key)}
        if wanted:
            losses[str(past)] += len(wanted)
            others.add(past.workflow.removesuffix(PART))
            unknown -= wanted
    if unknown:
        losses["runs that this store has no record of"] = len(unknown)
    return dict(losses), others
