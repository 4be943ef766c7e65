"""Records of earlier chunks as samples of cost: seconds of each stage, memory, bytes, files, joules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, islice
from typing import Any, NamedTuple

from pipeline.declare.node import Pass
from pipeline.running.memory_advice import speed
from pipeline.store.durable import nbytes_of
from pipeline.store.record import Facts, Record
from pipeline.store.store import Store
from stages.base.compilation import Kernels

SAMPLED = 64
"""Records of a stage and a store that are read, evenly among its chunks."""


class Machine(NamedTuple):
    """Device of a worker: GPUs of a kind that share a lattice, or a processor with its threads."""

    backend: str
    kind: str
    number: int = 1

    @classmethod
    def named(cls, backend: str, device: str) -> Machine:
        """The machine that a record names: `2 x NVIDIA H200`, or `EPYC 9654, 4 threads`."""
        pattern = (
            r"(?P<number>\d+) x (?P<kind>.+)"
            if backend == "cuda"
            else r"(?P<kind>.+), (?P<number>\d+) threads"
        )
        found = re.fullmatch(pattern, device)
        return cls(backend, found["kind"], int(found["number"])) if found else cls(backend, device)

    def __str__(self) -> str:
        if self.backend == "cuda":
            return self.kind if self.number == 1 else f"{self.number} x {self.kind}"
        return f"{self.kind}, {self.number} threads"

    @property
    def gpus(self) -> int:
        """GPUs of a worker; of a processor's, 1."""
        return self.number if self.backend == "cuda" else 1

    @property
    def of_kernels(self) -> Machine:
        """The machine that compiled kernels are of: those of a processor serve any number of threads."""
        return self._replace(number=1) if self.backend == "cpu" else self

    @property
    def speed(self) -> float:
        """Against one GPU, or one thread."""
        return speed(self.number) if self.backend == "cuda" else self.number


@dataclass(frozen=True)
class Part:
    """One stage's part of a chunk: its seconds without those for kernels, and its passes with real counts."""

    stage: str
    seconds: float
    expected: tuple[Pass, ...]
    counts: tuple[float, ...]
    first: bool
    """The first of its stage in a process, which loads what it needs."""
    kernels: Mapping[str, Kernels]
    """What it waited for, by kind."""

    @property
    def passes(self) -> list[tuple[float, float]]:
        """Count and bytes of each pass."""
        return [(count, each.nbytes) for each, count in zip(self.expected, self.counts, strict=True)]


@dataclass(frozen=True)
class ChunkSample:
    """A chunk as it was measured; `expected` are the bytes that its plan named."""

    stage: str
    machine: Machine
    process: str
    seconds: float
    finished: str
    parts: tuple[Part, ...]
    handling: float
    """Seconds in which inputs were read and arrays summed for checks."""
    opening: float | None
    """Seconds before, in which the first chunk of a process loads its device's libraries."""
    kernels: Mapping[str, Kernels]
    """Waited for beside its parts."""
    joules: float | None
    host_bytes: int | None
    device_bytes: int | None
    stored: int
    files: int
    resident: int
    """Bytes that its process kept for other chunks, on the host or each GPU, and would keep at most."""
    resident_limit: int
    expected: Mapping[str, int]

    @property
    def size(self) -> float:
        """Bytes of its fields, on all GPUs of its worker."""
        passes = self.parts[-1].expected if self.parts else ()
        return size_of(self.machine.gpus * self.expected["device_memory"], passes)

    def all_kernels(self) -> Kernels:
        """All that its process waited for."""
        tables = (self.kernels, *(part.kernels for part in self.parts))
        return reduce(Kernels.plus, chain(*(table.values() for table in tables)), Kernels())

    @property
    def rest(self) -> float:
        """Seconds beside its parts, kernels and what it read and summed: comparing code."""
        known = self.handling + self.all_kernels().seconds + sum(part.seconds for part in self.parts)
        return max(0.0, self.seconds - known)


def samples(stores: Iterable[Store]) -> list[ChunkSample]:
    """Samples from stores; records of older versions, which do not name parts, are left out."""
    return [each for store in stores for stage in store.stages() for each in _of_stage(store, stage)]


def _of_stage(store: Store, stage: str) -> Iterator[ChunkSample]:
    keys = sorted(store.each_key(stage))
    for key in islice(keys, 0, None, max(1, len(keys) // SAMPLED)):
        try:
            record = Record.of(store.record(stage, key))
            if record.checks.get("repeated"):  # its solves were done twice, by slower kernels
                continue
            yield _sample(record, *stored_size(store, stage, key))
        except Exception:  # a foreign record may hold anything
            continue


def size_of(device_memory: int, passes: Sequence[Pass]) -> float:
    """Bytes of a chunk's fields, as far as its plan declares any."""
    return float(device_memory) or max((each.nbytes for each in passes), default=0.0)


def stored_size(store: Store, stage: str, key: str) -> tuple[int, int]:
    """Bytes and files of a chunk."""
    path = store.location(stage, key)
    if path.is_dir():
        return nbytes_of(path), sum(each.is_file() for each in path.rglob("*"))
    return path.stat().st_size, 1


def _sample(record: Record, stored: int, files: int) -> ChunkSample:
    machine, worker = Machine.named(record.backend, record.device), record.worker
    kernels = _kernels(worker["kernels"])
    handling = record.loading_seconds + record.checks["seconds"]
    return ChunkSample(
        stage=record.stage,
        machine=machine,
        process=worker["process"],
        seconds=record.seconds,
        finished=record.finished,
        parts=tuple(_part(each, record) for each in record.parts),
        handling=max(0.0, handling - sum(each.seconds for each in kernels.values())),
        opening=worker["opening"],
        kernels=kernels,
        joules=record.joules,
        host_bytes=record.host_bytes,
        device_bytes=record.device_bytes,
        stored=stored,
        files=files,
        resident=record.resident["bytes"] // machine.gpus,
        resident_limit=record.resident["limit"] // machine.gpus,
        expected=record.expected,
    )


def _part(part: Facts, record: Record) -> Part:
    """A part with the real numbers of its passes, as statistics tell."""
    known = {each["node"]: each["statistics"] for each in record.transient}
    statistics = record.statistics if part["node"] == record.node else known.get(part["node"], {})
    work = part["work"]
    expected = tuple(Pass(name, n, nbytes, counted, tuple(alike)) for name, n, nbytes, counted, alike in work)
    counts = tuple(_total(statistics.get(each.counted)) or each.count for each in expected)
    kernels = _kernels(part["kernels"])
    seconds = part["seconds"] - sum(each.seconds for each in kernels.values())
    return Part(part["stage"], max(0.0, seconds), expected, counts, part["first"], kernels)


def _kernels(kernels: Mapping[str, Sequence[float]]) -> dict[str, Kernels]:
    return {kind: Kernels(int(n), seconds, int(nbytes)) for kind, (n, seconds, nbytes) in kernels.items()}


def _total(value: float | Sequence[Any] | None) -> float:
    if isinstance(value, (list, tuple)):
        return sum(map(_total, value))
    return float(value) if isinstance(value, (int, float)) else 0.0
