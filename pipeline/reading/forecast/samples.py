"""Records of earlier chunks as samples of cost: seconds of each stage, memory, bytes, files, joules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from pipeline.declare.node import Pass
from pipeline.running.gpu_shares import speed
from pipeline.store.durable import nbytes_of
from pipeline.store.store import Store
from stages.base.compilation import Kernels
from stages.base.errors import InputError

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
    def speed(self) -> float:
        """Against one GPU, or one thread."""
        return speed(self.number) if self.backend == "cuda" else self.number


@dataclass(frozen=True)
class Part:
    """One stage's part of a chunk: its seconds without those for kernels, and its passes with real counts."""

    stage: str
    machine: Machine
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

    node: str
    stage: str
    machine: Machine
    process: str
    seconds: float
    finished: str
    parts: tuple[Part, ...]
    handling: float
    """Seconds in which inputs were read and arrays summed for checks."""
    rest: float
    """Seconds beside those, of its parts and of kernels: comparing code."""
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


def samples(stores: Iterable[Store], clock: str = "seconds") -> list[ChunkSample]:
    """Samples from stores; records of older versions, which do not name parts, are left out.

    clock: 'seconds', or 'cpu_seconds', for machines that are shared with others.
    """
    return [each for store in stores for stage in store.stages() for each in _of_stage(store, stage, clock)]


def _of_stage(store: Store, stage: str, clock: str) -> Iterator[ChunkSample]:
    keys = sorted(store.each_key(stage))
    for key in islice(keys, 0, None, max(1, len(keys) // SAMPLED)):
        try:
            record = store.record(stage, key)
            if record.get("checks", {}).get("repeated"):  # its solves were done twice, by slower kernels
                continue
            size, files = stored_size(store, stage, key)
            yield _sample(record, size, files, clock)
        except (InputError, KeyError, TypeError, ValueError, OSError):
            continue


def stored_size(store: Store, stage: str, key: str) -> tuple[int, int]:
    """Bytes and files of a chunk."""
    path = store.location(stage, key)
    if path.is_dir():
        return nbytes_of(path), sum(each.is_file() for each in path.rglob("*"))
    return path.stat().st_size, 1


def _sample(record: Mapping[str, Any], stored: int, files: int, clock: str) -> ChunkSample:
    machine = Machine.named(record["backend"], record["device"])
    share = record[clock] / record["seconds"] if clock != "seconds" else 1.0
    parts = tuple(_part(each, record, machine, share) for each in record["parts"])
    worker, seconds = record["worker"], share * record["seconds"]
    outside = _kernels(worker["kernels"], share)
    beside = sum(each.seconds for each in outside.values())
    handling = max(0.0, share * (record["loading_seconds"] + record["checks"]["seconds"]) - beside)
    kernels = sum(each.seconds for table in (outside, *(p.kernels for p in parts)) for each in table.values())
    return ChunkSample(
        node=record["node"],
        stage=record["stage"],
        machine=machine,
        process=worker["process"],
        seconds=seconds,
        finished=record["finished"],
        parts=parts,
        handling=handling,
        rest=max(0.0, seconds - handling - kernels - sum(part.seconds for part in parts)),
        opening=worker["opening"],
        kernels=outside,
        joules=record["joules"],
        host_bytes=record["host_bytes"],
        device_bytes=record["device_bytes"],
        stored=stored,
        files=files,
        resident=record["resident"]["bytes"] // machine.gpus,
        resident_limit=record["resident"]["limit"] // machine.gpus,
        expected=record["expected"],
    )


def _part(part: Mapping[str, Any], record: Mapping[str, Any], machine: Machine, share: float) -> Part:
    kernels = _kernels(part["kernels"], share)
    seconds = share * part["seconds"] - sum(each.seconds for each in kernels.values())
    return Part(part["stage"], machine, max(0.0, seconds), *_passes(part, record), part["first"], kernels)


def _kernels(kernels: Mapping[str, Sequence[float]], share: float) -> dict[str, Kernels]:
    return {kind: Kernels(int(n), share * seconds, int(b)) for kind, (n, seconds, b) in kernels.items()}


def _passes(part: Mapping[str, Any], record: Mapping[str, Any]) -> tuple[tuple[Pass, ...], tuple[float, ...]]:
    """The passes that were expected of a part, and their real numbers, as statistics tell."""
    known = {each["node"]: each["statistics"] for each in record["transient"]}
    statistics = record["statistics"] if part["node"] == record["node"] else known.get(part["node"], {})
    expected, counts = [], []
    for name, count, nbytes, counted, alike in part["work"]:
        expected.append(Pass(name, count, nbytes, counted, tuple(alike)))
        counts.append(_total(statistics.get(counted)) or count)
    return tuple(expected), tuple(counts)


def _total(value: float | Sequence[Any] | None) -> float:
    if isinstance(value, (list, tuple)):
        return sum(map(_total, value))
    return float(value) if isinstance(value, (int, float)) else 0.0
