"""Getting the result of a chunk: its inputs loaded, shared or computed, then the stage's function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np

from pipeline.declare.coordinates import At, Checkpoint, Coordinate, Coordinates
from pipeline.declare.node import Stage
from pipeline.declare.signature import Input, Output
from pipeline.store.checkpoint import FolderCheckpoint
from pipeline.store.provenance import plain
from pipeline.store.stored_array import StoredArray
from pipeline.worker.events import EventKind, Send, rate_limited
from pipeline.worker.memory import device_pool
from pipeline.worker.resident import ResidentCache, nbytes, process_cache
from pipeline.worker.stopwatch import Stopwatch
from pipeline.worker.work import RunContext, Work

Evaluated = tuple[Any, dict[str, Any]]
"""A result with the statistics that its stage recorded."""


class Evaluation:
    """Results for the length of one task: transient ones are shared, resident ones outlive it."""

    def __init__(self, works: Sequence[Work], context: RunContext, send: Send) -> None:
        self._store = context.store
        self._send = send
        self._context = context
        self._uses = _uses(works)
        self._shared: dict[str, Evaluated] = {}
        self._statistics: dict[str, dict[str, Any]] = {}
        self.stopwatch = Stopwatch()
        self._chunk: dict[str, Any] = {}
        """Names what is to be committed: what transient stages report on the way is its progress."""

    def compute(self, work: Work, checkpoint: Checkpoint | None = None) -> Evaluated:
        """Compute a chunk: its result, and what its stage recorded."""
        stage = work.node.stage
        if not stage.transient:
            self._chunk = work.identity
        listener = rate_limited(self._send, self._chunk)
        at = At(work.coordinates, backend=work.node.backend, listener=listener, checkpoint=checkpoint)
        files = {name: version.check() for name, version in work.files.items()}
        arguments = [self._argument(*pair, at) for pair in _arguments(stage, work)]
        services = {"at": at} if stage.takes_at else {}
        if not stage.transient:
            self._make_room(work)
        with self.stopwatch.running(work.node.name, stage.name):
            result = stage.function(*arguments, **services, **work.node.parameters, **files)
        for version in work.files.values():
            version.check()  # what was read is what the key says only if it is still there
        return result, at.statistics

    def checkpoint(self, work: Work) -> FolderCheckpoint:
        """The checkpoint of a chunk's computation; no folder is made before it is used."""
        note = {"event": EventKind.NOTE, **work.identity}
        folder = self._store.checkpoints / work.node.stage.name / work.key
        within = self._store.path
        return FolderCheckpoint(folder, lambda text: self._send({**note, "message": text}), within)

    def keep(self, work: Work, result: Any) -> None:
        """Hold a result that was just committed as if it had been loaded, if its stage is resident."""
        if work.node.stage.resident:
            self._cache("cpu").get(f"{work.key}-cpu", lambda: (result, {}))

    def transient_statistics(self, work: Work) -> list[dict[str, Any]]:
        """Statistics of the transient results that went into a chunk."""
        keys = dict.fromkeys(source.key for source in _transient_inputs(work))
        return [self._statistics[key] for key in keys if key in self._statistics]

    def get(self, work: Work) -> Any:
        """The result of an input: kept, shared, computed or loaded."""
        if work.node.stage.resident:
            result, statistics = self._hold(work)
        elif work.inputs is None:
            result, statistics = self._make(work)
        else:
            result, statistics = self._share(work)
        if statistics:
            self._statistics[work.key] = {**work.identity, "statistics": plain(statistics)}
        return result

    def _hold(self, work: Work) -> Evaluated:
        """A resident result from what this worker keeps; one too large for that is shared in this task."""
        name = work.held_as
        if name in self._shared:
            return self._share(work)
        cache = self._cache(work.node.backend)
        evaluated = cache.get(name, lambda: self._make_to_stay(work))
        if cache.declines(evaluated):
            self._send(
                {
                    "event": EventKind.NOT_KEPT,
                    "bytes": nbytes(evaluated),
                    "limit": cache.limit,
                    **work.identity,
                }
            )
            self._shared[name] = evaluated
            return self._share(work)
        self._uses[name] -= 1
        return evaluated

    def _cache(self, backend: str) -> ResidentCache:
        limit = self._context.device_resident_bytes if backend == "cuda" else self._context.resident_bytes
        return process_cache(limit, backend)

    def _make_room(self, work: Work) -> None:
        """Results that stay from other tasks leave the GPU where this one needs their memory."""
        device, needed = device_pool(work.node.backend), work.node.device_memory
        if device and needed:
            self._cache(work.node.backend).make_room(lambda: device.free() >= needed)

    def _share(self, work: Work) -> Evaluated:
        """A result made for its first use in this task and dropped after its last."""
        name = work.held_as
        if name not in self._shared:
            self._shared[name] = self._make(work)
        self._uses[name] -= 1
        return self._shared[name] if self._uses[name] > 0 else self._shared.pop(name)

    def _make(self, work: Work) -> Evaluated:
        stage = work.node.stage
        if work.inputs is not None:
            return self.compute(work)
        return stage.result(**self._load(stage, work.key)), {}

    def _load(self, stage: Stage, key: str) -> dict[str, Any]:
        """The arrays of a stored result; those in pieces are left to be read by whoever needs them."""
        stored = self._store.arrays(stage.name, key)
        return {o.name: stored[o.name] if o.pieces else stored[o.name][...] for o in stage.outputs}

    def _make_to_stay(self, work: Work) -> Evaluated:
        """Evaluate, then return what only the making took of a GPU, before what stays cuts that up."""
        evaluated = self._make(work)
        if device := device_pool(work.node.backend):
            device.release_unused()
        return evaluated

    def _argument(self, argument: Input, sources: Sequence[Work], at: At) -> Any:
        if argument.reduces:
            return _LazyChunks(self, sources, at)
        pieces = [(source.coordinates, self.get(source)) for source in sources]
        return _joined(sources[0].node.stage, dict(at), pieces)


class _LazyChunks:
    """The chunks of an input that is reduced over; each is loaded when its turn comes."""

    def __init__(self, evaluation: Evaluation, sources: Sequence[Work], at: At) -> None:
        self._evaluation = evaluation
        self._sources = sources
        self._at = at

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[tuple[At, Any]]:
        for source in self._sources:
            wanted = {dim: _within(values, self._at, dim) for dim, values in source.coordinates.items()}
            result = _joined(source.node.stage, wanted, [(source.coordinates, self._evaluation.get(source))])
            yield At(wanted, backend=self._at.backend), result


def _within(values: tuple[Any, ...], at: At, dim: str) -> tuple[Any, ...]:
    return tuple(value for value in values if value in at[dim]) if dim in at else values


def _joined(stage: Stage, wanted: Coordinates, pieces: Sequence[tuple[Coordinates, Any]]) -> Any:
    """One result at the wanted coordinates; the very object if there is nothing to join or cut."""
    if len(pieces) == 1 and all(wanted.get(dim, held) == held for dim, held in pieces[0][0].items()):
        return pieces[0][1]
    return stage.result(**join(stage.outputs, wanted, pieces))


def _arguments(stage: Stage, work: Work) -> Iterator[tuple[Input, tuple[Work, ...]]]:
    for position, sources in enumerate(work.inputs or ()):
        yield stage.inputs[min(position, len(stage.inputs) - 1)], sources


def _transient_inputs(work: Work) -> Iterator[Work]:
    for source in chain(*(work.inputs or ())):
        if source.inputs is not None:
            yield source
            yield from _transient_inputs(source)


def _uses(works: Sequence[Work]) -> Counter[str]:
    """Number of times that a task asks for each transient or resident result, if each is made once."""
    uses: Counter[str] = Counter()
    makers = list(works)
    while makers:
        for source in chain(*(makers.pop().inputs or ())):
            if source.inputs is not None or source.node.stage.resident:
                uses[source.held_as] += 1
                if uses[source.held_as] == 1:
                    makers.append(source)
    return uses


def join(
    outputs: Sequence[Output], wanted: Coordinates, pieces: Sequence[tuple[Coordinates, Any]]
) -> dict[str, Any]:
    """Arrays at the `wanted` coordinates, from the chunks that hold them.

    Args:
        outputs: names and dimensions of the arrays; along a dimension of the stage, an array has the length
            of the chunk.
        wanted: coordinates per dimension; a dimension that is absent is taken whole, from one chunk.
        pieces: (coordinates, result) of each chunk; a result is a tuple of arrays in the order of `outputs`.
    """
    return {
        output.name: _join_one(output, wanted, [(at, result[k]) for at, result in pieces])
        for k, output in enumerate(outputs)
    }


def _join_one(output: Output, wanted: Coordinates, pieces: Sequence[tuple[Coordinates, Any]]) -> Any:
    """NumPy or CuPy, as the pieces are; what lies in the store is read."""
    pieces = [(at, np.asarray(a) if isinstance(a, StoredArray) else a) for at, a in pieces]
    first_at, first = pieces[0]
    joined = [dim for dim in output.dims if dim in wanted and dim in first_at]
    shape = [
        len(wanted[dim]) if dim in joined else n for dim, n in zip(output.dims, first.shape, strict=True)
    ]
    xp = import_module(type(first).__module__.partition(".")[0])
    result = xp.empty(shape, first.dtype)
    for at, array in pieces:
        target, source = [], []
        for dim, length in zip(output.dims, array.shape, strict=True):
            whole = range(length)
            to, of = _common(wanted[dim], at[dim]) if dim in joined else (whole, whole)
            target.append(to)
            source.append(of)
        result[xp.ix_(*map(xp.asarray, target))] = array[xp.ix_(*map(xp.asarray, source))]
    return result


def _common(wanted: Sequence[Coordinate], held: Sequence[Coordinate]) -> tuple[list[int], list[int]]:
    """Positions, in both, of the coordinates that both have."""
    position = {value: k for k, value in enumerate(held)}
    both = [(k, position[value]) for k, value in enumerate(wanted) if value in position]
    return [to for to, _ in both], [of for _, of in both]
