"""A chunk's record: what stands in it beside the numbers, its seal, and what is checked when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(content: Any) -> bytes:
    """JSON with sorted keys, no spaces, ASCII, shortest floats: equal content gives equal bytes."""
    return _ENCODER.encode(content).encode("ascii")


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as JSON gives it back, with `digest`: SHA-256 of the canonical JSON of all else in it."""
    content = json.loads(json.dumps({name: value for name, value in record.items() if name != "digest"}))
    return {**content, "digest": _digest(content)}


def record_in(text: str | bytes, stage: str, key: str) -> dict[str, Any]:
    """The record in a group's metadata, checked: that it is whole and belongs to this stage and key.

    A record of format 1 has neither key nor digest of its own: only its stage can be compared. Raises
    ValueError where it is no record, was changed, or is that of another chunk.
    """
    content = json.loads(text)
    record: Any = content.get("attributes") if isinstance(content, dict) else None
    arrays = record.get("arrays") if isinstance(record, dict) else None
    if not isinstance(arrays, dict) or any("digest" not in (array or ()) for array in arrays.values()):
        raise ValueError("its record does not give its arrays and their digests")
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
