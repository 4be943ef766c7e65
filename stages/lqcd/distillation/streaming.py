"""Fields that are too large for the device, or lie elsewhere, brought to it by tiles of time slices.

A tile travels while the caller works on the one before: there are two buffers of each field, filled in turn
by a thread of its own, on a GPU through page-locked memory and on other CUDA streams than the caller's
(`stages.lqcd.kernels.transfer`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from math import ceil, prod
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import empty_field
from stages.lqcd.kernels.transfer import Stored, to_device

TILE_BYTES = 256 << 20
"""Of a tile, unless one slice has more: long beside what starting it costs, short beside the whole field."""


@dataclass(frozen=True)
class SlicedField:
    """An array of which `rows` entries along `axis`, 0 or 1, make a time slice."""

    array: Stored
    axis: int
    rows: int

    @property
    def slice_bytes(self) -> int:
        return prod(self.shape(1)) * np.dtype(self.array.dtype).itemsize

    def shape(self, count: int) -> tuple[int, ...]:
        """Shape of a part of so many slices."""
        whole = self.array.shape
        return (*whole[: self.axis], count * self.rows, *whole[self.axis + 1 :])

    def is_in(self, xp: ModuleType) -> bool:
        """True if it need not be moved to be an array of `xp`."""
        return isinstance(self.array, xp.ndarray)

    @property
    def piece_bytes(self) -> int:
        """Bytes read of a store at a time: a slice, or its part in each entry along the first axis."""
        return self.slice_bytes // (self.array.shape[0] if self.axis else 1)

    def copy_part(self, first: int, count: int, target: Array, copy: Callable[[NDArray, Array], Any]) -> None:
        """Slices first, first + 1, ... into `target`, in contiguous pieces; from a store slice by slice."""
        step = count if isinstance(self.array, np.ndarray) else 1
        for start in range(0, count, step):
            to_rows = slice(start * self.rows, (start + step) * self.rows)
            from_rows = slice((first + start) * self.rows, (first + start + step) * self.rows)
            for outer in [(i,) for i in range(self.array.shape[0])] if self.axis else [()]:
                copy(self.array[*outer, from_rows], target[*outer, to_rows])


def buffer_bytes(fields: Sequence[SlicedField], times: int, tile: int, xp: ModuleType) -> int:
    """Bytes of the buffers that `streamed` makes, and on the host of the piece of a field that it reads."""
    away = [field for field in fields if not field.is_in(xp)]
    buffers = min(2, ceil(times / tile)) * tile * sum(field.slice_bytes for field in away)
    return buffers + (max((field.piece_bytes for field in away), default=0) if xp is np else 0)


@dataclass(frozen=True)
class Tile:
    """Time slices first, ... of some fields: slice first of field i is slice starts[i] of parts[i]."""

    first: int
    count: int
    parts: tuple[Array, ...]
    starts: tuple[int, ...]


def streamed(fields: Sequence[SlicedField], times: int, tile: int, xp: ModuleType) -> Iterator[Tile]:
    """The fields as C-contiguous arrays of `xp`, `tile` slices at a time.

    What a tile holds is overwritten after the caller has asked for the next but one; on a GPU the work that
    reads it is on the stream that is current then. Fields that are in `xp` are not copied.
    """
    firsts = range(0, times, tile)
    away = [field for field in fields if not field.is_in(xp)]
    turns = min(2, len(firsts)) if away else 0
    buffers = [
        [empty_field((prod(field.shape(tile)),), field.array.dtype, xp) for field in away]
        for _ in range(turns)
    ]
    moving = _Moving(xp)
    released = [moving.mark() for _ in range(2)]

    def targets(number: int, count: int) -> list[Array]:
        shapes = [field.shape(count) for field in away]
        return [
            buffer[: prod(shape)].reshape(shape)
            for buffer, shape in zip(buffers[number % 2], shapes, strict=True)
        ]

    def load(number: int) -> None:
        count = min(tile, times - firsts[number])
        moving.wait(released[number % 2])
        with moving.context():
            for field, target in zip(away, targets(number, count), strict=True):
                field.copy_part(firsts[number], count, target, moving.copy)

    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(load, 0) if away else None
        for number, first in enumerate(firsts):
            count = min(tile, times - first)
            if pending is not None:
                pending.result()
                pending = pool.submit(load, number + 1) if number + 1 < len(firsts) else None
            yield _tile(fields, xp, first, count, targets(number, count) if away else [])
            released[number % 2] = moving.mark()


def _tile(
    fields: Sequence[SlicedField], xp: ModuleType, first: int, count: int, moved: Sequence[Array]
) -> Tile:
    """Copies of what was moved; of other fields a view, or the whole where a part is not contiguous."""
    arriving, parts, starts = iter(moved), [], []
    for field in fields:
        if not field.is_in(xp):
            part: Any = next(arriving)
            start = 0
        elif field.axis == 0:
            part, start = field.array[first * field.rows : (first + count) * field.rows], 0
        else:
            part, start = field.array, first
        parts.append(part)
        starts.append(start)
    return Tile(first, count, tuple(parts), tuple(starts))


class _Moving:
    """Transfer of parts to the arrays of a library, which knows when these may be overwritten."""

    def __init__(self, xp: ModuleType) -> None:
        self.xp: Any = xp
        self.device = None if xp is np else xp.cuda.Device()

    def mark(self) -> Any:
        """The end of the work that the caller has started."""
        return None if self.device is None else self.xp.cuda.get_current_stream().record()

    def wait(self, mark: Any) -> None:
        if mark is not None:
            mark.synchronize()

    def context(self) -> AbstractContextManager[Any]:
        """A stream for the loading thread that does not wait for the caller's."""
        stack = ExitStack()
        if self.device is not None:
            stack.enter_context(self.device)
            stack.enter_context(self.xp.cuda.Stream(non_blocking=True))
        return stack

    def copy(self, source: NDArray, target: Array) -> None:
        if self.device is None:
            np.copyto(target, source)
        else:
            to_device(np.asarray(source), target)


def slices_per_tile(
    fields: Sequence[SlicedField],
    times: int,
    device_bytes: int,
    planned: Callable[[int], int],
    what: str,
) -> int:
    """The most slices whose planned bytes stay within `device_bytes`, but no more than `TILE_BYTES`.

    planned: bytes for a number of slices; they grow with it, but all slices need one buffer and not two.
    Raises InputError if not one slice fits.
    """
    wanted = max(1, TILE_BYTES // max(field.slice_bytes for field in fields))
    whole = planned(times) <= device_bytes
    if whole and wanted >= times:
        return times
    fitting = bisect_right(range(1, times), device_bytes, key=planned)
    if not fitting and not whole:
        needed = min(planned(1), planned(times))
        raise InputError(
            f"{what} takes {needed} bytes even for one time slice at a time, got device_bytes = "
            f"{device_bytes}: allow at least {needed}, or take fewer columns at a time"
        )
    return min(fitting, wanted) or times
