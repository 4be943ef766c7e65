"""A chunk's record: what stands in it beside the numbers, its seal, and what is checked when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NotRequired, Required, TypedDict

from pipeline.declare.coordinates import Coordinates
from pipeline.store.plain_files import json_object
from pipeline.store.typed import expect, field_types, known_and_other

Facts = Mapping[str, Any]
"""By name."""

RECORD = "zarr.json"
"""Metadata of a chunk's group, with the record as its attributes."""


RECORD_BYTES = 32 << 20
"""Of the file of a record, at most, as it is written and read."""


class ArrayFacts(TypedDict):
    """An array in a record; one of format 1 has no sums of its files."""

    digest: str
    dims: Sequence[str]
    metadata: NotRequired[str]
    """SHA-256 of its metadata."""
    pieces: NotRequired[Mapping[str, int]]
    """CRC32C of each file of numbers, by name."""


class GpuFacts(TypedDict, total=False):
    """Figures of a GPU in a record; None, or lacking, is what nothing measured."""

    gpu: Required[str]
    """Its place on the PCI bus."""
    device_bytes: int | None
    joules: float | None
    busy: float | None
    nvlink_sent: float | None
    nvlink_received: float | None


class TransientFacts(TypedDict):
    """A transient result of which a chunk was made."""

    node: str
    stage: NotRequired[str]
    key: NotRequired[str]
    statistics: Facts


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that is kept with a chunk: what it is, where every number comes from, what it took.

    Of one of an earlier version, what it does not have is empty, or None where that may be measured.
    """

    stage: str = ""
    version: str = ""
    node: str = ""
    key: str = ""
    coordinates: Coordinates = field(default_factory=dict)
    parameters: Facts = field(default_factory=dict)
    chunk: Mapping[str, int] = field(default_factory=dict)
    inputs: Sequence[Sequence[str]] = ()
    """Per input, keys of the chunks that it was."""
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Path and SHA-256 of each, by parameter."""
    backend: str = ""
    device: str = ""
    certificate: str | None = None
    uncertified: str = ""
    """Why it has no certificate."""
    statistics: Facts = field(default_factory=dict)
    """As its stage recorded them."""
    seconds: float = 0.0
    finished: str = ""
    """Time, UTC."""
    host: str = ""
    run: str = ""
    code: Mapping[str, str] = field(default_factory=dict)
    """Versions of quarkline, Python and NumPy, commit, digest of the sources."""
    gpus: Sequence[GpuFacts] = ()
    """Bytes, joules, use and traffic of each GPU."""
    joules: float | None = None
    device_bytes: int | None = None
    """Most that was taken of a GPU."""
    cpu_seconds: float | None = None
    host_bytes: int | None = None
    parts: Sequence[Facts] = ()
    """Of each stage that ran for it: its seconds, its kernels, the passes that were expected."""
    loading_seconds: float = 0.0
    resident: Mapping[str, int] = field(default_factory=dict)
    """Bytes that its process kept of other results, and its limit."""
    expected: Mapping[str, int] = field(default_factory=dict)
    """Bytes that its plan expected."""
    worker: Facts = field(default_factory=dict)
    """Name of its process, seconds in which that opened its device, kernels beside those of parts."""
    transient: Sequence[TransientFacts] = ()
    """Transient results that it was made of, with their statistics."""
    checks: Facts = field(default_factory=dict)
    """Whether a part was repeated; bytes summed and seconds taken by checks."""
    arrays: Mapping[str, Facts] = field(default_factory=dict)
    digest: str = ""
    more: Facts = field(default_factory=dict)
    """What this version does not know."""

    @classmethod
    def of(cls, content: Facts) -> Record:
        """The record that the store gives."""
        known, more = known_and_other(content, _TYPES)
        at = known.get("coordinates", {})
        known["coordinates"] = {dim: tuple(values) for dim, values in at.items()}
        return cls(**known, more=more)

    def all_statistics(self) -> list[Facts]:
        """Statistics of its stage, and of the transient results that it was made of."""
        return [self.statistics, *(each["statistics"] for each in self.transient)]

    def without_kernels(self, seconds: str, node: str = "") -> dict[str, Any]:
        """Statistics of the chunk or of a transient node in it, with the entry `seconds` less kernels.

        What a node's part waited for kernels is not all within those seconds: where it did, they are at most
        the rest of the part.
        """
        known = {each["node"]: each["statistics"] for each in self.transient}
        statistics, own = known.get(node, self.statistics), node or self.node
        spent = [max(0.0, part["seconds"] - waited(part)) for part in self.parts if part["node"] == own]
        return {**statistics, seconds: min([statistics[seconds], *spent])}

    def as_dict(self) -> dict[str, Any]:
        """The record in JSON's types, without what the store adds."""
        given = ("more", *(name for name in ("uncertified", "arrays", "digest") if not getattr(self, name)))
        content = {name: value for name, value in vars(self).items() if name not in given}
        at = {dim: list(values) for dim, values in self.coordinates.items()}
        return {**content, "coordinates": at, **self.more}


def waited(part: Facts) -> float:
    """Seconds that a part of a chunk waited for kernels that were compiled or read."""
    return sum(seconds for _, seconds, _ in part.get("kernels", {}).values())


_TYPES = field_types(Record, "more")

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(content: Any) -> bytes:
    """JSON with sorted keys, no spaces, ASCII, shortest floats: equal content gives equal bytes."""
    return _ENCODER.encode(content).encode("ascii")


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as JSON gives it back, with `digest`: SHA-256 of the canonical JSON of all else in it."""
    content = json.loads(json.dumps({name: value for name, value in record.items() if name != "digest"}))
    return {**content, "digest": _digest(content)}


def record_in(text: bytes, stage: str, key: str) -> dict[str, Any]:
    """The record in a group's metadata, checked: that it is whole and belongs to this stage and key.

    A record of format 1 has neither key nor digest of its own: only its stage can be compared. Raises
    ValueError where it is no record, was changed, or is that of another chunk.
    """
    content = json_object(text)
    record: Any = content.get("attributes") if content else None
    arrays = record.get("arrays") if isinstance(record, dict) else None
    if not isinstance(arrays, dict) or any("digest" not in (array or ()) for array in arrays.values()):
        raise ValueError("its record does not give its arrays and their digests")
    for name, array in arrays.items():
        if "/" in name or name.startswith("."):
            raise ValueError(f"its record names an array {name!r:.64}")
        if ("pieces" in expect(array, ArrayFacts, f"array {name} of its record")) != ("metadata" in array):
            raise ValueError(f"array {name} of its record lacks a part of its sums")
    if is_sealed(record) and record["digest"] != _digest({n: v for n, v in record.items() if n != "digest"}):
        raise ValueError("its record was changed: its digest differs")
    for name, expected in (("stage", stage), ("key", key)):
        if record.get(name, expected) != expected:
            raise ValueError(f"its record is that of another chunk, with {name} {record[name]!s:.64}")
    return record


def is_sealed(record: Mapping[str, Any]) -> bool:
    """True for a record of format 2. Raises ValueError for one that lost a part of its seal."""
    pieces = any("pieces" in array for array in record["arrays"].values())
    if pieces or "digest" in record or "key" in record:
        if not {"digest", "key", "stage"} <= set(record):
            raise ValueError("its record was changed: key, stage or digest are gone")
        return True
    return False


def _digest(content: Any) -> str:
    return sha256(canonical_json(content)).hexdigest()
