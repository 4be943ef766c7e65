"""Checks against silent errors: sums of the arrays that a worker holds, and chunks that are computed twice.

Of every argument of a stage the arrays are summed when they are first seen and again when the stage's
function has returned, so that memory which changed meanwhile is noticed before anything is committed. What
stays on a worker keeps its sums. An object whose class says `scratch = True` holds working memory, which is
left out.

Of a fraction of all chunks, chosen by a digest of their keys, stages are asked to repeat a part by a path of
their own (`At.again`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import ModuleType
from typing import Any
from zlib import crc32

import numpy as np

from stages.base.errors import DisagreementError, InputError

FRACTION = 0.01
"""Of the chunks, that are repeated in part unless a run says otherwise."""

Array = Any
"""Array of numbers, of NumPy or CuPy."""

Checksum = Callable[[Array], int]


def host_checksum(array: Array) -> int:
    """CRC-32 of an array; one that lies on a device is copied for it."""
    there = np.asarray(array.get() if hasattr(array, "get") else array)
    return crc32(np.ascontiguousarray(there).data)


@dataclass(frozen=True)
class Checks:
    """Checks of a run.

    fraction: of the chunks, whose stages repeat a part by another path, 0 to 1; 0: none. checksum: of an
    array, wherever it lies; a function of a module, for it travels to the workers by name. Raises InputError.
    """

    fraction: float = FRACTION
    checksum: Checksum = host_checksum

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1:
            raise InputError(
                f"the fraction of chunks that are repeated in part must lie in 0 to 1, got {self.fraction}"
            )

    def choose(self, key: str) -> bool:
        """True for the chunks that are repeated in part: a function of the key alone."""
        return int(sha256(f"again {key}".encode()).hexdigest()[:16], 16) < self.fraction * 2**64


CHECKS = Checks()


@dataclass
class Effort:
    """Bytes summed and seconds taken by the checks of a chunk."""

    bytes: int = 0
    seconds: float = 0.0


@dataclass
class Sums:
    """Checksums of the arrays of one value."""

    checksum: Checksum
    known: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By the path of an array within the value: which object it is, and its sum."""

    def compare(self, name: str, value: object, effort: Effort) -> None:
        """Compare the arrays with their sums; those that are new are summed for later.

        Raises:
            DisagreementError: an array changed; `name` is that of the value.
        """
        began = time.perf_counter()
        for path, array in arrays_of(value):
            total = self.checksum(array)
            effort.bytes += int(array.nbytes)
            identity, before = self.known.get(path, (id(array), total))
            if identity == id(array) and before != total:
                raise DisagreementError(
                    f"{name}{path and f' ({path})'} changed in memory since it was made: its checksum was "
                    f"{before:016x} and is {total:016x}"
                )
            self.known[path] = (id(array), total)
        effort.seconds += time.perf_counter() - began


def is_array(value: Array) -> bool:
    """True for an array of numbers of any library."""
    return hasattr(value, "nbytes") and hasattr(value, "flags") and value.dtype.kind in "biufc"


def arrays_of(value: object, wanted: Callable[[Array], bool] = is_array) -> Iterator[tuple[str, Array]]:
    """Arrays in a result and their paths: those of tuples, lists, mappings, dataclasses, plain objects."""
    return _arrays_of(value, wanted, "", set())


def _arrays_of(
    value: object, wanted: Callable[[Array], bool], path: str, seen: set[int]
) -> Iterator[tuple[str, Array]]:
    if id(value) in seen or isinstance(value, (ModuleType, type)) or getattr(type(value), "scratch", False):
        return
    seen.add(id(value))
    if wanted(value):
        yield path, value
        return
    if isinstance(value, Mapping):
        items: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, (tuple, list)):
        items = zip(getattr(value, "_fields", range(len(value))), value, strict=True)
    else:
        items = getattr(value, "__dict__", {}).items()
    for name, item in list(items):
        yield from _arrays_of(item, wanted, f"{path}.{name}" if path else str(name), seen)


_kept: dict[str, Sums] = {}
"""Sums of what stays on this worker, by the name under which it is held."""


def kept_sums(name: str, checksum: Checksum) -> Sums:
    """Sums of a resident result, which are those of its last making."""
    return _kept.setdefault(name, Sums(checksum))


def forget_sums(name: str | None = None) -> None:
    """Drop the sums of a resident result that is made anew, or of all."""
    if name is None:
        _kept.clear()
    else:
        _kept.pop(name, None)


def result_sums(result: object, checksum: Checksum, effort: Effort) -> dict[str, int]:
    """Sums of the arrays of a result, where they were computed, by name."""
    began = time.perf_counter()
    sums = {path: checksum(array) for path, array in arrays_of(result)}
    effort.seconds += time.perf_counter() - began
    return sums


def compare_results(
    stage: str, arrays: Mapping[str, Array], sums: Mapping[str, int], checksum: Checksum, effort: Effort
) -> None:
    """Compare arrays that are to be committed with what was computed.

    Raises:
        DisagreementError: one has another sum.
    """
    began = time.perf_counter()
    for name, total in sums.items():
        effort.bytes += 2 * arrays[name].nbytes
        if checksum(arrays[name]) != total:
            raise DisagreementError(
                f"output {name!r} of stage {stage} changed between its computation and its commit"
            )
    effort.seconds += time.perf_counter() - began
