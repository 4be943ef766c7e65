"""Operands of a kernel's call copied to the host, for another implementation, and what both leave in them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.short_numbers import CODE_ZERO

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
        self, arguments: Sequence[object], named: Mapping[str, object], packed: Callable[[object], object]
    ) -> None:
        self._packed = packed
        self._copies: dict[Hashable, tuple[Array, NDArray, NDArray]] = {}
        """The array, a copy for the twin, and one of what it held before."""
        self.arguments = [self._host(value) for value in arguments]
        self.named = {name: self._host(value) for name, value in named.items()}

    @property
    def arrays(self) -> list[NDArray]:
        """All arrays."""
        return [held for _, held, _ in self._copies.values()]

    @property
    def precision(self) -> str:
        """Single if anything is, by which all that follows is rounded; else double."""
        single = (np.dtype(np.float32), np.dtype(np.complex64))
        return "single" if any(array.dtype in single for array in self.arrays) else "double"

    @property
    def widths(self) -> set[int]:
        """Numbers of right-hand sides of the fields."""
        return {a.shape[2] for a in self.arrays if a.ndim == 3 and a.shape[1] in COMPONENTS}

    def differences(self, result: object, expected: object) -> list[float]:
        """Differences of the arrays that a call left or returned from those of its twin."""
        scale = max((_largest(array) for array in self.arrays if array.dtype.kind in "fc"), default=0.0)
        left = [
            difference(as_numpy(array), held, before, scale) for array, held, before in self._copies.values()
        ]
        if self._copies:
            left += [difference(ours, theirs, None, scale) for ours, theirs in _returned(result, expected)]
        return left

    def _host(self, value: Any) -> Any:
        if is_array(value):
            place = _place(value)
            if place not in self._copies:
                held = np.array(as_numpy(value), order="C")
                self._copies[place] = (value, held, held.copy())
            return self._copies[place][1]
        if (twin := self._packed(value)) is not None:
            return twin
        if type(value) in (tuple, list):
            return type(value)(self._host(item) for item in value)
        is_form = is_dataclass(value) and not isinstance(value, type)
        parts = {each.name: getattr(value, each.name) for each in fields(value)} if is_form else {}
        holds = any(is_array(part) or isinstance(part, dict) for part in parts.values())
        package = type(value).__module__.removeprefix("stages.lqcd.kernels.").split(".")[0]
        if package in ("cpu", "cuda", "reference") and (holds or not is_form):
            raise UnknownOperandError(f"an operand is {type(value).__name__}, packed before it was watched")
        if not holds:
            return value
        twin = copy.copy(value)
        for name, part in parts.items():
            object.__setattr__(twin, name, {} if isinstance(part, dict) else self._host(part))
        return twin


def _place(array: Any) -> Hashable:
    """The memory that an array shows."""
    interface = getattr(array, "__array_interface__", None) or array.__cuda_array_interface__
    return interface["data"][0], array.shape, array.strides, str(array.dtype)


def is_array(value: object) -> bool:
    """True for arrays of either library, not for scalars and types."""
    attributes = all(hasattr(value, name) for name in ("dtype", "strides", "ndim"))
    return attributes and not isinstance(value, (type, np.generic))


def items(value: object) -> Iterator[Any]:
    """A value, or what is in a sequence and in sequences in it."""
    if isinstance(value, (tuple, list, ValuesView)):
        for item in value:
            yield from items(item)
    else:
        yield value


def _returned(result: object, expected: object) -> Iterator[tuple[NDArray, NDArray]]:
    """Arrays and counts that both returned."""
    for ours, theirs in zip(items(result), items(expected), strict=True):
        if is_array(ours) and is_array(theirs):
            yield as_numpy(ours), as_numpy(theirs)
        elif isinstance(ours, COUNTS) and isinstance(theirs, COUNTS):
            yield np.array([ours]), np.array([theirs])


def difference(found: NDArray, expected: NDArray, before: NDArray | None, scale: float = 0.0) -> float:
    """Largest difference relative to the largest number that was, or is to be, where it was written.

    scale: of the operands; numbers far below it are what sums left that cancelled.
    """
    if found.shape != expected.shape:
        return np.inf
    if found.dtype == expected.dtype == np.uint16:  # codes of a HalfField, which may be rounded either way
        earlier = None if before is None else before.astype(float) - CODE_ZERO
        return difference(found.astype(float) - CODE_ZERO, expected.astype(float) - CODE_ZERO, earlier)
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
