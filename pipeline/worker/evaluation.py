"""Getting the result of a chunk: its inputs loaded, shared or computed, then the stage's function."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path

from pipeline.declare.coordinates import At, Checkpoint, Coordinate, describe
from pipeline.declare.node import Stage
from pipeline.declare.signature import Input
from pipeline.store.checkpoint import FolderCheckpoint
from pipeline.store.provenance import as_json
from pipeline.store.record import Facts, TransientFacts
from pipeline.worker.checks import Array, Effort, Sums, forget_sums, kept_sums
from pipeline.worker.events import EventKind, Send, rate_limited
from pipeline.worker.joining import Result, arguments_of, joined
from pipeline.worker.memory import device_pool
from pipeline.worker.resident import ResidentCache, nbytes, process_cache
from pipeline.worker.stopwatch import Stopwatch
from pipeline.worker.work import RunContext, Work
from stages.base.gpus import gpus_of, sharing

Evaluated = tuple[Result, Facts]
"""A result with the statistics that its stage recorded."""


class Evaluation:
    """Results for the length of one task: transient ones are shared, resident ones outlive it."""

    def __init__(self, works: Sequence[Work], context: RunContext, send: Send) -> None:
        self._store = context.store
        self._send = send
        self._context = context
        self._uses = _uses(works)
        self._shared: dict[str, Evaluated] = {}
        self._statistics: dict[str, TransientFacts] = {}
        self.stopwatch = Stopwatch()
        self.loading = 0.0
        """Seconds in which stored results were read since the last commit."""
        self._chunk: Facts = {}
        """Names what is to be committed: what transient stages report on the way is its progress."""
        self._chosen = False
        """Whether parts of what is to be committed are repeated."""
        self._sums: dict[str, Sums] = {}
        """Of results that are shared in this task."""
        self.effort = Effort()
        """Of the checks since the last commit."""

    def compute(self, work: Work, checkpoint: Checkpoint | None = None) -> Evaluated:
        """Compute a chunk: its result, and what its stage recorded."""
        stage = work.node.stage
        if not stage.transient:
            self._chunk, self.effort, self.loading = work.identity, Effort(), 0.0
            self._chosen = self._context.checks.choose(work.key)
        listener = rate_limited(self._send, self._chunk)
        again = partial(self._input_again, work) if self._chosen else None
        backend = work.node.backend
        at = At(work.coordinates, backend=backend, listener=listener, checkpoint=checkpoint, again=again)
        files = _files_of(work)
        arguments = [self._argument(*pair, at) for pair in arguments_of(stage, work)]
        if not stage.transient:
            self._make_room(work)
        with (
            sharing(work.node.cost.shares, backend),
            self._unchanged(work, arguments),
            self.stopwatch.running(work.node),
        ):
            result = _called(work, at, arguments, files)
        _files_of(work)  # what was read is what the key says only if it is still there
        return result, at.statistics

    @contextmanager
    def _unchanged(self, work: Work, arguments: Sequence[object]) -> Iterator[None]:
        """Raises DisagreementError if the arguments change in memory while they are in use.

        It does so as well where the stage raises: then that is why, and the chunk is computed again.
        """
        guards = self._guards(work, arguments)
        for name, sums, value in guards:
            sums.compare(name, value, self.effort)
        try:
            yield
        finally:
            for name, sums, value in guards:
                sums.compare(name, value, self.effort)

    def _guards(self, work: Work, arguments: Sequence[object]) -> list[tuple[str, Sums, object]]:
        """Name, sums and value of each argument of a stage that is there as a whole."""
        guards, checksum = [], self._context.checks.checksum
        for (argument, sources), value in zip(arguments_of(work.node.stage, work), arguments, strict=True):
            if not argument.reduces:
                first = sources[0]
                if len(sources) > 1:
                    sums = Sums(checksum)
                elif first.node.stage.resident:
                    sums = kept_sums(first.held_as, checksum)
                else:
                    sums = self._sums.setdefault(first.held_as, Sums(checksum))
                place = describe(first.coordinates)
                guards.append((f"{argument.name} of {first.node.name} {place}".rstrip(), sums, value))
        return guards

    def checkpoint(self, work: Work) -> FolderCheckpoint:
        """The checkpoint of a chunk's computation; no folder is made before it is used."""
        folder = self._store.checkpoints / work.node.stage.name / work.key

        def tell(text: str) -> None:
            self._send(work.event(EventKind.NOTE, message=text))

        return FolderCheckpoint(folder, tell, self._store.path)

    def keep(self, work: Work, result: Result) -> None:
        """Hold a result that was just committed as if it had been loaded, if its stage is resident."""
        if work.node.stage.resident:
            self._cache("cpu").get(f"{work.key}-cpu", lambda: (result, {}))

    def transient_statistics(self, work: Work) -> list[TransientFacts]:
        """Statistics of the transient results that went into a chunk."""
        keys = dict.fromkeys(source.key for source in work.transient())
        return [self._statistics[key] for key in keys if key in self._statistics]

    def get(self, work: Work) -> Result:
        """The result of an input: kept, shared, computed or loaded."""
        if work.node.stage.resident:
            result, statistics = self._hold(work)
        elif work.inputs is None:
            result, statistics = self._make(work)
        else:
            result, statistics = self._share(work)
        if statistics:
            self._statistics[work.key] = {**work.identity, "statistics": as_json(statistics)}  # type: ignore
        return result

    def _hold(self, work: Work) -> Evaluated:
        """A resident result from what this worker keeps; one too large for that is shared in this task."""
        name = work.held_as
        if name in self._shared:
            return self._share(work)
        cache = self._cache(work.node.backend)
        evaluated = cache.get(name, lambda: self._make_to_stay(work))
        if cache.declines(evaluated):
            self._send(work.event(EventKind.NOT_KEPT, bytes=nbytes(evaluated), limit=cache.limit))
            self._shared[name] = evaluated
            return self._share(work)
        self._uses[name] -= 1
        return evaluated

    def resident_bytes(self, backend: str) -> dict[str, int]:
        """Bytes of all results that this process keeps in a backend's memory, all its GPUs; their bound."""
        cache = self._cache(backend)
        return {"bytes": cache.used, "limit": cache.limit}

    def _cache(self, backend: str) -> ResidentCache:
        return process_cache(None if backend == "cuda" else self._context.resident_bytes, backend)

    def _make_room(self, work: Work) -> None:
        """Results that stay from other tasks leave the GPU where this one needs their memory."""
        device = device_pool(work.node.backend)
        needed = work.node.cost.on_each(gpus_of(work.node.backend)).device_memory
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
        began = time.perf_counter()
        arrays = self._load(stage, work.key)
        self.loading += time.perf_counter() - began
        return stage.result(**arrays), {}

    def _load(self, stage: Stage, key: str) -> dict[str, Array]:
        """The arrays of a stored result; those in pieces are left to be read by whoever needs them."""
        stored = self._store.arrays(stage.name, key)
        return {o.name: stored[o.name] if o.pieces else stored[o.name][...] for o in stage.outputs}

    def _make_to_stay(self, work: Work) -> Evaluated:
        """Evaluate, then return what only the making took of a GPU, before what stays cuts that up."""
        forget_sums(work.held_as)
        evaluated = self._make(work)
        if device := device_pool(work.node.backend):
            device.release_unused()
        return evaluated

    def _argument(self, argument: Input, sources: Sequence[Work], at: At) -> Result:
        if argument.reduces:
            return _LazyChunks(self, sources, at)
        pieces = [(source.coordinates, self.get(source)) for source in sources]
        return joined(sources[0].node.stage, dict(at), pieces)

    def _input_again(self, work: Work, name: str) -> Result:
        """An argument of a chunk's stage, made on the host of what is stored and of files.

        Nothing that this worker keeps is used. Raises KeyError where the stage has none of that name.
        """
        for argument, sources in arguments_of(work.node.stage, work):
            if argument.name == name:
                return self._joined_again(sources, At(work.coordinates))
        raise KeyError(name)

    def _joined_again(self, sources: Sequence[Work], at: At) -> Result:
        pieces = [(source.coordinates, self._made_again(source)) for source in sources]
        return joined(sources[0].node.stage, dict(at), pieces)

    def _made_again(self, work: Work) -> Result:
        stage = work.node.stage
        if work.inputs is None:
            return stage.result(**self._load(stage, work.key))
        at = At(work.coordinates)
        arguments = [self._joined_again(sources, at) for _, sources in arguments_of(stage, work)]
        return _called(work, at, arguments, _files_of(work))


class _LazyChunks:
    """The chunks of an input that is reduced over; each is loaded when its turn comes."""

    def __init__(self, evaluation: Evaluation, sources: Sequence[Work], at: At) -> None:
        self._evaluation = evaluation
        self._sources = sources
        self._at = at

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[tuple[At, Result]]:
        for source in self._sources:
            wanted = {dim: _within(values, self._at, dim) for dim, values in source.coordinates.items()}
            result = joined(source.node.stage, wanted, [(source.coordinates, self._evaluation.get(source))])
            yield At(wanted, backend=self._at.backend), result


def _within(values: tuple[Coordinate, ...], at: At, dim: str) -> tuple[Coordinate, ...]:
    return tuple(value for value in values if value in at[dim]) if dim in at else values


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


def _files_of(work: Work) -> dict[str, Path]:
    """Paths of its input files, which are those that were planned. Raises InputError."""
    return {name: version.check() for name, version in work.files.items()}


def _called(work: Work, at: At, arguments: Sequence[object], files: Mapping[str, Path]) -> Result:
    """What the function of its stage returns."""
    stage = work.node.stage
    where = {"at": at} if stage.takes_at else {}
    return stage.function(*arguments, **where, **work.node.parameters, **files)
