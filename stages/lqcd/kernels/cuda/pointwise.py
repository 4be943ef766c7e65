"""Launches of `pointwise.cu`: what is done element by element, where operands lie in rows.

On one GPU a kernel is the same for all extents; where devices share a field, each takes the rows of its
sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil, prod
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.group import current_group
from stages.lqcd.kernels.cuda.devices.partition import PAGE, RowWork
from stages.lqcd.kernels.cuda.devices.spans import Span, span_of
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, Launch, power_of_two

TOGETHER = 1024
"""Elements that a block takes at a time, where rows are short."""

WIDEST = 4096
"""Elements of a row at most."""

FEW = 64
"""Segments that may be short."""

BLOCKS = 1 << 14
"""At most: several for each place of a multiprocessor, so that none is long idle."""

TYPES = {"F": "float2", "D": "double2", "f": "float", "d": "double"}
"""Numbers of kernels that compute, by the character of their dtype."""

UNITS = {16: "uint4", 8: "uint2", 4: "unsigned", 2: "unsigned short", 1: "unsigned char"}
"""What is moved where nothing is computed, by bytes."""


@dataclass(frozen=True)
class Rows:
    """Operands of one shape as ``[segments, rows, n]``, the n side by side; strides: of segments and rows.

    All in elements; `rows` runs over the sites.
    """

    segments: int
    rows: int
    n: int
    strides: tuple[tuple[int, int], ...]

    def cut(self, segments: int) -> Rows:
        """The rows of one segment as those of several, as of both parities one after the other."""
        rows = self.rows // segments
        if segments == 1 or rows * segments < self.rows:
            return self
        return Rows(segments, rows, self.n, tuple((rows * row, row) for _, row in self.strides))


@lru_cache(maxsize=4096)
def rows_of(
    shape: tuple[int, ...], *strides: tuple[int, ...], segments: int | None = None, by_column: bool = False
) -> Rows | None:
    """Operands of this shape and these strides, in elements, as rows; None where they are not.

    segments: those in which their memory is cut, if rows are to be had so; else the longest axis counts the
    sites, as in `stages.lqcd.kernels.cuda.devices.partition`, or another one. n is the extent of the last
    axis where it can be, and rows are then cut as those of other kernels. by_column: it must be.
    """
    kept = [axis for axis, extent in enumerate(shape[:-1]) if extent > 1]
    extents = [*(shape[axis] for axis in kept), shape[-1]]
    steps = [[*(each[axis] for axis in kept), each[-1] if shape[-1] > 1 else 1] for each in strides]
    last = len(extents)
    order = sorted(range(last), key=lambda axis: (prod(extents[:axis]) != segments, -extents[axis]))
    for sites, columns in ((s, c) for s in order for c in (*range(last - 1, s, -1), last)):
        if by_column and columns != last - 1:
            continue
        lead = [_merged(extents, each, 0, sites) for each in steps]
        rows = [_merged(extents, each, sites, columns) for each in steps]
        inner = [_merged(extents, each, columns, last) for each in steps]
        side_by_side = columns == last or all(each == 1 for each in inner)
        counts = prod(extents[:sites]), prod(extents[sites:columns]), prod(extents[columns:])
        if None not in (*lead, *rows) and side_by_side and _fills_blocks(*counts):
            found = Rows(*counts, tuple(zip(lead, rows, strict=True)))  # type: ignore[arg-type]
            return found.cut(segments or 1) if found.segments == 1 else found
    return None


def _fills_blocks(segments: int, rows: int, n: int) -> bool:
    """Whether blocks, which take a row at least and rows of one segment alone, are neither idle nor few."""
    return n <= WIDEST and (segments <= FEW or rows * n >= BLOCK_THREADS)


def _merged(extents: Sequence[int], steps: Sequence[int], begin: int, end: int) -> int | None:
    """The stride of these axes as one, 0 for none; None where they are not one."""
    for axis in range(begin, end - 1):
        if steps[axis] != steps[axis + 1] * extents[axis + 1]:
            return None
    return steps[end - 1] if end > begin else 0


Form = tuple[tuple[int, ...], tuple[int, ...], int, int]
"""Shape, strides and bytes of an element of an array, and segments in which its memory is cut."""


@dataclass(frozen=True)
class Plan:
    """A launch for operands of some forms, their strides, and the kernel's extents; None: nothing to do."""

    launch: Launch | None
    strides: tuple[tuple[np.int64, np.int64], ...] = ()
    counts: tuple[Any, ...] = ()


def start(
    kernel: str,
    types: tuple[str, ...],
    arrays: Sequence[cupy.ndarray],
    *numbers: Any,
    unit: int | None = None,
    columns: int | None = None,
) -> bool:
    """Queue a kernel on arrays of the shape of the first; False where they are not rows.

    types: the kernel's template arguments. numbers: its arguments after the arrays. unit: bytes of what is
    moved, if that is not an element. columns: of what is done column by column, when arrays may have others.
    """
    forms = tuple((each.shape, each.strides, each.itemsize, segments_of(each)) for each in arrays)
    plan = _planned(kernel, types, forms, unit, columns)
    if plan is None or plan.launch is None:
        return plan is not None
    operands: list[Any] = []
    for array, strides in zip(arrays, plan.strides, strict=True):
        operands += (np.uintp(array.data.ptr), *strides)
    run(plan.launch, *operands, *numbers, *plan.counts)
    return True


@lru_cache(maxsize=4096)
def _planned(
    kernel: str, types: tuple[str, ...], forms: tuple[Form, ...], unit: int | None, columns: int | None
) -> Plan | None:
    """The plan for operands of these forms, None where they are not rows."""
    shapes, steps = zip(*(_in_units(*form[:3], unit or form[2]) for form in forms), strict=True)
    shape = shapes[0] if columns is None else (*shapes[0][:-1], columns)
    if not shape or not prod(shape):
        return Plan(None) if shape else None
    spread = max(segments for *_, segments in forms)
    rows = rows_of(shape, *steps, segments=spread or None, by_column=columns is not None)
    if rows is None:
        return None
    together = max(1, TOGETHER // rows.n)
    blocks = min(power_of_two(2 * ceil(rows.rows / together) * rows.segments - 1), BLOCKS)
    work = RowWork(rows.rows) if spread else None
    launch = pointwise_launch(f"{kernel}<{', '.join(types)}>", blocks, work)
    counts = (np.int64(rows.segments), np.int64(rows.rows), np.int32(rows.n), np.int32(together))
    return Plan(launch, tuple((np.int64(a), np.int64(b)) for a, b in rows.strides), counts)


def _in_units(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, unit: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides in units of so many bytes, of which rows are made (`fits`)."""
    if not shape:
        return (), ()
    last = strides[-1] // itemsize
    return (*shape[:-1], shape[-1] * itemsize // unit), (*(step // unit for step in strides[:-1]), last)


@cache
def pointwise_launch(instance: str, blocks: int, work: RowWork | None = None) -> Launch:
    """A kernel of `pointwise.cu`; so many blocks go round, few in number so that kernels are few."""
    return Launch("pointwise.cu", instance, (blocks,), BLOCK_THREADS, work=work)


def segments_of(array: cupy.ndarray) -> int:
    """Segments of an array's memory of which each device that shares it has a part; 0 for one device's."""
    span = None if current_group() is None else span_of(array)
    return 0 if span is None else _segments(span, array.data.ptr - span.address, array.shape, array.strides)


@lru_cache(maxsize=4096)
def _segments(span: Span, begin: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    steps = [(extent - 1) * step for extent, step in zip(shape, strides, strict=True)]
    ends = begin + sum(min(0, step) for step in steps), begin + sum(max(0, step) for step in steps)
    inside = 0
    for _, address, length in span.segments():
        first = address - span.address
        inside += 2 * (min(ends[1], first + length) - max(ends[0], first)) >= PAGE
    return max(1, inside // len({part for part, _ in span.runs}))


def computed(
    kernel: str, kinds: Sequence[cupy.ndarray], arrays: Sequence[cupy.ndarray], *numbers: Any
) -> bool:
    """Queue a kernel on arrays of real or of complex numbers; False where they are none or not rows.

    kinds: arrays of the types that the kernel is for.
    """
    types = tuple(TYPES.get(each.dtype.char, "") for each in kinds)
    first = arrays[0]
    alike = all(each.shape == first.shape and each.dtype.kind == first.dtype.kind for each in arrays)
    return alike and "" not in types and start(kernel, types, arrays, *numbers)


def copied(out: cupy.ndarray, x: cupy.ndarray) -> bool:
    """``out = x`` of one shape in the precision of `out`; False where they are not rows."""
    if out.dtype != x.dtype:
        return computed("copy", (out, x), (out, x))
    unit = _unit(out, x)
    return unit > 0 and start("copy", (UNITS[unit],) * 2, (out, x), unit=unit)


def cleared(out: cupy.ndarray) -> bool:
    """``out = 0``; False where it is not rows."""
    unit = _unit(out)
    return unit > 0 and start("clear", (UNITS[unit],), (out,), unit=unit)


def _unit(*arrays: cupy.ndarray) -> int:
    """Bytes of the widest units of which rows of these arrays of one dtype are made; 0 without an axis."""
    addresses = 0
    for array in arrays:
        addresses |= array.data.ptr
    return widest_unit(
        addresses % max(UNITS), *((each.shape, each.strides, each.itemsize) for each in arrays)
    )


@lru_cache(maxsize=4096)
def widest_unit(address: int, *forms: tuple[tuple[int, ...], tuple[int, ...], int]) -> int:
    """Bytes of the widest units that arrays of these shapes, strides and elements are made of.

    address: of all of them, modulo the widest; each unit must lie where it can be loaded. 0 without an axis.
    """
    for unit in UNITS:
        if address % unit == 0 and all(_fits(unit, *form) for form in forms):
            return unit
    return 0


def _fits(unit: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    if not shape or unit == itemsize:
        return bool(shape)
    side_by_side = strides[-1] == itemsize or shape[-1] == 1
    return side_by_side and all(step % unit == 0 for step in (shape[-1] * itemsize, *strides[:-1]))
