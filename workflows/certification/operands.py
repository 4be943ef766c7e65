"""Operands of a kernel's call copied to the host, for another implementation, and what both leave in them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import as_numpy

CANCELLED = 100
"""Most by which an update in place may make numbers smaller and be judged by what they were before; memory
that was never written may hold anything.
"""

CANCELLATION = 1e-4
"""Results that are smaller than this times the largest operand are sums that cancelled, as products with
vectors that are orthogonal already: their rounding is judged by that."""

COUNTS = (int, np.integer)
"""Results of kernels beside arrays, which are the same everywhere; others may be rounding itself."""

COMPONENTS = (3, 12)
"""Colours, or spins and colours, of a field ``[site, component, N]``."""


class UnknownOperandError(Exception):
    """An operand in one package's own form, which no other was seen to make."""


class Hosted:
    """Copies of a call's operands; memory that is given twice, as input and output, is one array here, too.

    packed: gives a twin's form of an operand that was packed, None for others. Raises UnknownOperandError.
    """

    def __init__(
        self, arguments: Sequence[Any], named: Mapping[str, Any], packed: Callable[[Any], Any]
    ) -> None:
        self._packed = packed
        self._copies: dict[Hashable, tuple[Any, NDArray, NDArray]] = {}
        """The array, a copy for the twin, and one of what it held before."""
        self.arguments = [self._host(value) for value in arguments]
        self.named = {name: self._host(value) for name, value in named.items()}

    @property
    def arrays(self) -> list[NDArray]:
        """All arrays."""
        return [held for _, held, _ in self._copies.values()]

    @property
    def widths(self) -> set[int]:
        """Numbers of right-hand sides of the fields."""
        return {a.shape[2] for a in self.arrays if a.ndim == 3 and a.shape[1] in COMPONENTS}

    def pairs(self, result: Any, expected: Any) -> Iterator[tuple[NDArray, NDArray, NDArray | None]]:
        """Arrays that the call left or returned, those of the twin, and what was there before, if known."""
        for original, held, before in self._copies.values():
            yield as_numpy(original), held, before
        if self._copies:
            yield from _returned(result, expected)

    def _host(self, value: Any) -> Any:
        if _is_array(value):
            place = _place(value)
            if place not in self._copies:
                held = np.array(as_numpy(value), order="C")
                self._copies[place] = (value, held, held.copy())
            return self._copies[place][1]
        if (twin := self._packed(value)) is not None:
            return twin
        if type(value) in (tuple, list):
            return type(value)(self._host(item) for item in value)
        if is_dataclass(value) and not isinstance(value, type):
            return self._host_dataclass(value)
        if _is_foreign(value):
            raise UnknownOperandError(f"an operand is {type(value).__name__}, packed before it was watched")
        return value

    def _host_dataclass(self, value: Any) -> Any:
        """A copy with copied arrays; what has none is itself."""
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        if not any(_is_array(part) or isinstance(part, dict) for part in parts.values()):
            return value
        if _is_foreign(value):
            raise UnknownOperandError(f"an operand is {type(value).__name__}, packed before it was watched")
        twin = copy.copy(value)
        for name, part in parts.items():
            object.__setattr__(twin, name, {} if isinstance(part, dict) else self._host(part))
        return twin


def _place(array: Any) -> Hashable:
    """The memory that an array shows."""
    interface = getattr(array, "__array_interface__", None) or array.__cuda_array_interface__
    return interface["data"][0], array.shape, array.strides, str(array.dtype)


def _is_array(value: Any) -> bool:
    return (
        not isinstance(value, (type, np.generic))
        and hasattr(value, "dtype")
        and hasattr(value, "strides")
        and hasattr(value, "ndim")
    )


def has_arrays(values: Iterable[Any]) -> bool:
    """True if there are arrays among values, and in sequences among them."""
    return any(
        _is_array(value) or (isinstance(value, (tuple, list, ValuesView)) and has_arrays(value))
        for value in values
    )


def _is_foreign(value: Any) -> bool:
    """True for what one package of kernels packed in its own way."""
    package = type(value).__module__.removeprefix("stages.lqcd.kernels.").split(".")[0]
    return package in ("cpu", "cuda", "reference")


def _returned(result: Any, expected: Any) -> Iterator[tuple[NDArray, NDArray, NDArray | None]]:
    if _is_array(result) and _is_array(expected):
        yield as_numpy(result), as_numpy(expected), None
    elif isinstance(result, COUNTS) and isinstance(expected, COUNTS):
        yield np.array([result]), np.array([expected]), None
    elif isinstance(result, (tuple, list)) and isinstance(expected, (tuple, list)):
        for ours, theirs in zip(result, expected, strict=True):
            yield from _returned(ours, theirs)


def is_single(arrays: Sequence[NDArray]) -> bool:
    """True if anything is in single precision, by which all that follows is rounded."""
    return any(array.dtype in (np.float32, np.complex64) for array in arrays)


def scale_of(arrays: Sequence[NDArray]) -> float:
    """Largest number among operands that are no integers."""
    return max((_largest(array) for array in arrays if array.dtype.kind in "fc"), default=0.0)


def difference(found: NDArray, expected: NDArray, before: NDArray | None, scale: float = 0.0) -> float:
    """Largest difference relative to the largest number that was, or is to be, where it was written.

    scale: of the operands; numbers far below it are what sums left that cancelled.
    """
    if found.shape != expected.shape:
        return np.inf
    if found.dtype.kind not in "fc":
        return 0.0 if np.array_equal(found, expected) else np.inf
    written = np.ones(expected.shape, bool)
    if before is not None:
        written = ~(_same(expected, before) & _same(found, before))
    updated = 0.0 if before is None else _largest(before[written])
    found, expected = found[written], expected[written]
    if not found.size:
        return 0.0
    finite = np.isfinite(expected)
    if not np.array_equal(np.isfinite(found), finite):
        return np.inf
    size = _largest(expected)
    size = max(size, min(updated, CANCELLED * size), CANCELLATION * scale)
    error = _largest(found[finite] - expected[finite])
    return error / size if size else (np.inf if error else 0.0)


def _largest(values: NDArray) -> float:
    """Largest finite absolute value, 0 where there is none."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _same(a: NDArray, b: NDArray) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):  # memory that nobody has written yet
        return (a == b) | (np.isnan(a) & np.isnan(b))
