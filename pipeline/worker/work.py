"""The description of a chunk and of all that it needs, as it travels to a worker. Never data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from typing import Any

from pipeline.declare.coordinates import Coordinates
from pipeline.declare.node import Cost, Stage
from pipeline.declare.parameter import flattened
from pipeline.declare.stage import stage_of
from pipeline.store.files import FileVersion
from pipeline.store.record import Facts
from pipeline.store.store import Store
from pipeline.worker.checks import CHECKS, Checks
from pipeline.worker.events import ChunkState, Event, EventKind, chunk_identity
from pipeline.worker.sources import Sources

FREE = Cost()


@dataclass(frozen=True)
class NodeWork:
    """Description of a node for its tasks. The function travels by name."""

    name: str
    function: Callable[..., Any]
    parameters: Facts
    chunk: dict[str, int]
    backend: str
    version: str
    """Of the stage, as the driver knows it."""
    cost: Cost = FREE
    """All that the plan expects of a chunk."""

    @property
    def stage(self) -> Stage:
        """The declaration of its function."""
        return stage_of(self.function)


@dataclass(frozen=True, eq=False)
class Work:
    """One chunk to compute; or to load, if `inputs` is None."""

    node: NodeWork
    coordinates: Coordinates
    key: str
    inputs: tuple[tuple[Work, ...], ...] | None
    files: dict[str, FileVersion] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """The part of every event that says which chunk it is about."""
        return chunk_identity(self.node.name, self.node.stage.name, self.key, self.coordinates)

    def event(self, kind: EventKind | ChunkState, **about: Any) -> Event:
        """An event of the chunk."""
        return Event(kind, **self.identity, **about)

    @property
    def held_as(self) -> str:
        """Name under which a worker holds the result, with the backend in whose memory it lies.

        And with what keys leave out: another run's result may be another object, though it says the same.
        """
        name = f"{self.key}-{self.node.backend}"
        left_out = self._left_out()
        return f"{name}-{sha256(repr(left_out).encode()).hexdigest()[:8]}" if left_out else name

    def transient(self) -> Iterator[Work]:
        """Inputs that are computed in its own task, those of inputs among them."""
        for source in chain(*(self.inputs or ())):
            if source.inputs is not None:
                yield source
                yield from source.transient()

    def stored(self) -> Iterator[Work]:
        """Inputs that are read from the store, those of transient ones among them."""
        sources = chain(*(chain(*(work.inputs or ())) for work in (self, *self.transient())))
        return (source for source in sources if source.inputs is None)

    def _left_out(self) -> list[tuple[str, str]]:
        """Parameters that no key has, of this node and of those that its result is made of."""
        stage, node = self.node.stage, self.node
        values = flattened(stage.parameters, node.parameters) if stage.keyed.without else {}
        own = [(name, repr(values[name])) for name in stage.keyed.without if name in values]
        sources = [source for group in self.inputs or () for source in group]
        return sorted({*own, *(each for source in sources for each in source._left_out())})


@dataclass(frozen=True)
class RunContext:
    """Store, name, backend and memory bounds that all tasks of a run share."""

    store: Store
    run: str
    backend: str
    """Of the cluster."""
    resident_bytes: int
    """Bound of a worker's resident results in host memory; those on its GPU take a share of that."""
    sources: Sources
    """Of the code that the driver runs, and so must its workers."""
    checks: Checks = CHECKS
    gpus_per_worker: int = 1
    """GPUs that the plan expects of each worker."""

    @property
    def topic(self) -> str:
        """The topic of Dask's event log that this run's events go to."""
        return f"quarkline-{self.run}"
