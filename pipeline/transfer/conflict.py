"""Chunks that several stores have: are they the same?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pipeline.store.group import RECORD
from pipeline.store.store import Store
from pipeline.transfer.offer import Chunk
from stages.base.errors import InputError

READERS = 4


def compared(shared: Iterable[tuple[Chunk, Sequence[Store]]]) -> tuple[list[str], list[str]]:
    """Sentences on chunks that differ between stores, and on those that cannot be compared.

    Compared are the digests of their arrays.
    """
    pairs = ((chunk, first, other) for chunk, (first, *others) in shared for other in others)
    conflicts, damaged = [], []
    with ThreadPoolExecutor(READERS) as pool:
        for found in pool.map(_compare, pairs):
            if isinstance(found, InputError):
                damaged.append(str(found))
            elif found:
                conflicts.append(found)
    return conflicts, damaged


def _compare(pair: tuple[Chunk, Store, Store]) -> str | InputError:
    chunk, first, other = pair
    try:
        same = _same_bytes(first.location(*chunk), other.location(*chunk))
        return "" if same else _difference(chunk, first, other)
    except InputError as error:
        return error


def _same_bytes(one: Path, other: Path) -> bool:
    """True for chunks of the same content by their records, which hold the sums of all else."""
    try:
        paths = [path / RECORD if path.is_dir() else path for path in (one, other)]
        return os.path.samefile(*paths) or paths[0].read_bytes() == paths[1].read_bytes()
    except OSError:
        return False


def _difference(chunk: Chunk, first: Store, other: Store) -> str:
    """A sentence on what differs, '' where the arrays are the same and only their records differ."""
    records = [store.record(*chunk) for store in (first, other)]
    arrays = [{name: about["digest"] for name, about in record["arrays"].items()} for record in records]
    if arrays[0] == arrays[1]:
        return ""
    names = sorted(name for name in {*arrays[0], *arrays[1]} if arrays[0].get(name) != arrays[1].get(name))
    made = [
        f"{store.path} ({record.get('device', '?')})"
        for store, record in zip((first, other), records, strict=True)
    ]
    size = _largest_difference(chunk, names, first, other)
    return f"{chunk[0]}/{chunk[1][:12]}: {', '.join(names)} in {made[0]} and {made[1]} differ by {size}"


def _largest_difference(chunk: Chunk, names: Sequence[str], first: Store, other: Store) -> str:
    arrays, others = first.load(*chunk), other.load(*chunk)
    largest = 0.0
    for name in names:
        if name not in arrays or name not in others or arrays[name].shape != others[name].shape:
            return "their shapes"
        scale = float(np.max(np.abs(arrays[name]), initial=0.0)) or 1.0
        largest = max(largest, float(np.max(np.abs(arrays[name] - others[name]), initial=0.0)) / scale)
    return f"at most {largest:.1e} of the largest number"
