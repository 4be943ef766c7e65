"""Work of CuPy and cuBLAS on spread arrays, each device on the rows in its own pages.

What such a call reads beside these rows must be small: it comes over the link. Its temporaries lie on the
device whole, and what it returns stays there.

Arrays with a row for each site of a grid have equal runs of rows, each of which is cut in t: the sites of a
parity, those of both, the even ones first, or all sites of a grid without parities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import prod
from statistics import median_low
from typing import Any, TypeVar

import cupy
from numpy.typing import DTypeLike

from stages.lqcd.kernels.cuda.devices.group import OnFirst, current_group, works_separately
from stages.lqcd.kernels.cuda.devices.partition import PAGE, SiteWork
from stages.lqcd.kernels.cuda.devices.spans import Span, span_of

T = TypeVar("T")

OWN_COPY = cupy.ElementwiseKernel("T x", "T y", "y = x", "own_copy")
"""Between devices, too; in a graph it is a kernel like others."""

Rows = tuple[int, int, int]
"""A part, and the begin and end of a run of rows that it works on."""


def on_own_rows(
    compute: Callable[..., T],
    rows: cupy.ndarray,
    *others: cupy.ndarray | range,
    small: tuple[cupy.ndarray, ...] = (),
    leading: cupy.ndarray | None = None,
) -> list[T]:
    """Results of ``compute(*small, rows, *others)`` on the runs of rows of each device.

    rows: an array whose entries along the first axis are equally far from each other in memory; they decide,
    unless `leading` among the others does. others: arrays with as many such entries, or their numbers. small:
    arrays that each device takes a copy of. Where nothing is spread it is called once, with all rows; else
    the results are in the order of rows.
    """
    group = current_group()
    if group is None:
        return [compute(*small, rows, *others)]
    runs, results = _runs(rows if leading is None else leading), dict[int, T]()

    def on(part: int) -> None:
        for first, operands in _on_part(part, runs, (rows, *others), small):
            results[first] = compute(*operands)

    group.together(on)
    return [results[first] for first in sorted(results)]


def in_turns(
    compute: Callable[..., Iterator[None]],
    rows: cupy.ndarray,
    *others: cupy.ndarray | range,
    small: tuple[cupy.ndarray, ...] = (),
) -> None:
    """`on_own_rows` of work of many calls, which yields between them: devices take turns (`DeviceGroup`)."""
    group = current_group()
    if group is None:
        for _ in compute(*small, rows, *others):
            pass
        return

    runs = _runs(rows)

    def on(part: int) -> Iterator[None]:
        for _, operands in _on_part(part, runs, (rows, *others), small):
            yield from compute(*operands)

    group.in_turns(on)


def elementwise(
    compute: Callable[..., object], *arrays: cupy.ndarray, small: tuple[cupy.ndarray, ...] = ()
) -> None:
    """``compute(*small, *arrays)`` on each device's own rows of arrays of one shape, but for their last axes.

    compute: one of CuPy's kernels, with its result last. The last array that is spread decides about rows;
    where none is, all is done on the first device. small: as of `on_own_rows`.
    """
    group, span = current_group(), next(filter(None, map(span_of, reversed(arrays))), None)
    if group is None or span is None or not arrays[-1].size:
        compute(*small, *arrays)
        return
    rows = by_rows(*arrays)
    leading = next(each for each in reversed(rows) if span_of(each) is span)
    if leading.ndim > 2 and len(_runs(leading[0])) > 1:  # the sites are behind axes that memory skips in
        for entries in zip(*rows, strict=True):
            elementwise(compute, *entries, small=small)
        return
    on_own_rows(compute, *rows, small=small, leading=leading)


def _runs(rows: cupy.ndarray) -> list[Rows]:
    span = span_of(rows)
    return [(0, 0, len(rows))] if span is None or not rows.size else runs_of_rows(span, rows)


def _on_part(
    part: int, runs: list[Rows], arrays: tuple[cupy.ndarray | range, ...], small: tuple[cupy.ndarray, ...]
) -> Iterator[tuple[int, list[Any]]]:
    """The begin of each run of rows of a device, the current one, and the operands of the work on it."""
    own = [(first, end) for owner, first, end in runs if owner == part]
    copies = [local(array) for array in small] if own else []
    for first, end in own:
        own_rows = (each[first:end] for each in arrays)
        yield first, [*copies, *(each if isinstance(each, range) else here(each) for each in own_rows)]


def summed(compute: Callable[..., cupy.ndarray], rows: cupy.ndarray, *others: cupy.ndarray) -> cupy.ndarray:
    """The sum of what `on_own_rows` gives, in the order of rows."""
    total, *further = on_first(on_own_rows(compute, rows, *others))
    for each in further:
        total += each
    return total


def joined(parts: Sequence[cupy.ndarray]) -> cupy.ndarray:
    """Results of `on_own_rows`, one after another on the first device."""
    return on_first(parts)[0] if len(parts) == 1 else cupy.concatenate(on_first(parts))


def on_first(parts: Sequence[cupy.ndarray]) -> list[cupy.ndarray]:
    """Results of `on_own_rows` as arrays of the first device."""
    return list(parts) if current_group() is None else [here(part) for part in parts]


def runs_of_rows(span: Span, rows: cupy.ndarray) -> list[Rows]:
    """The rows of an array in a span, in runs on one device: a row lies where its middle does."""
    ends = [address + length for _, address, length in span.segments()]
    stride, middle = rows.strides[0], rows.data.ptr + rows[:1].nbytes // 2
    cuts = [min(max(-((middle - end) // stride), 0), len(rows)) for end in ends]
    parts = [part for part, _ in span.runs]
    runs = zip(parts, pairwise([0, *cuts]), strict=True)
    return [(part, first, end) for part, (first, end) in runs if first < end]


def segments_of(array: cupy.ndarray) -> int:
    """Equal segments of an array, of each of which every device has a part; 1 where nothing is spread."""
    span = span_of(array)
    if span is None or not array.size:
        return 1
    parts = len({part for part, _ in span.runs})
    segments = max(1, len(runs_of_rows(span, array)) // parts)
    return segments if len(array) % segments == 0 else 1


def local(array: cupy.ndarray) -> cupy.ndarray:
    """An array, or its copy on the current device where devices work by themselves."""
    return OWN_COPY(here(array)) if works_separately() else array


def by_rows(*arrays: cupy.ndarray) -> list[cupy.ndarray]:
    """Views of arrays of one shape, but for their last axes, whose first axes are one where memory allows."""
    merged = 1
    while merged < min(array.ndim for array in arrays) - 1 and all(
        array.strides[merged - 1] == array.shape[merged] * array.strides[merged] for array in arrays
    ):
        merged += 1
    return [
        cupy.ndarray((prod(a.shape[:merged]), *a.shape[merged:]), a.dtype, a.data, a.strides[merged - 1 :])
        for a in arrays
    ]


def here(array: cupy.ndarray) -> cupy.ndarray:
    """An array as one of the current device, which reads and writes it wherever it lies."""
    memory, device = array.data.mem, cupy.cuda.get_device_id()
    own = cupy.cuda.UnownedMemory(memory.ptr, memory.size, array, device)
    pointer = cupy.cuda.MemoryPointer(own, array.data.ptr - memory.ptr)
    return cupy.ndarray(array.shape, array.dtype, pointer, array.strides)


def cut_runs(array: cupy.ndarray) -> int:
    """Runs of rows of an array that are cut in t, by where it lies; 0 where it lies on one device."""
    group, span = current_group(), span_of(array)
    if group is None or span is None:
        return 0
    begin, end = array.data.ptr, array.data.ptr + len(array) * array.strides[0]
    inside = [(part, min(end, start + size) - max(begin, start)) for part, start, size in span.segments()]
    runs = Counter(part for part, size in inside if 2 * size >= PAGE)
    # a page that two runs share may be one run more of a device, or one less
    return max(1, median_low(runs[part] for part in range(group.partition.parts)))


def site_work(like: cupy.ndarray, axis: int = 0, per_site: int = 1) -> SiteWork | None:
    """The work of a kernel on the sites that are rows of an array, where that is spread."""
    runs = cut_runs(like)
    return SiteWork(len(like) // runs, runs, axis, per_site) if runs else None


def runs_like(array: cupy.ndarray, shape: tuple[int, ...]) -> int | None:
    """Runs of rows in which an array of this shape lies as another does; None where nothing says how.

    That is where it has the extents of the other, after a number of such fields or none.
    """
    group = current_group()
    if group is None or shape[-array.ndim :] != array.shape or not array.size:
        return None
    fields = prod(shape[: -array.ndim])
    if runs := cut_runs(array):
        return runs * fields if len(array) % runs == 0 else None
    owner = array.data.mem._owner if isinstance(array.data.mem, cupy.cuda.UnownedMemory) else None
    return 0 if isinstance(owner, OnFirst) else None


def empty_rows(shape: tuple[int, ...], dtype: DTypeLike, runs: int) -> cupy.ndarray:
    """An array, not filled, of so many runs of rows; without runs it lies on the first device."""
    group = current_group()
    if group is None:
        return cupy.empty(shape, dtype)
    if not runs:
        return group.empty_on_first(shape, dtype)
    return group.empty((runs, prod(shape) // runs), dtype).reshape(shape)


def zero_rows(shape: tuple[int, ...], dtype: DTypeLike, runs: int) -> cupy.ndarray:
    """An array of zeros whose rows lie so."""
    group = current_group()
    if group is None:
        return cupy.zeros(shape, dtype)
    if runs:
        return group.zeros((runs, prod(shape) // runs), dtype).reshape(shape)
    array = group.empty_on_first(shape, dtype)
    array.fill(0)
    return array


def rows_beside(like: cupy.ndarray, shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
    """An array, not filled, with as many rows as another, which lie where those do."""
    return empty_rows(shape, dtype, cut_runs(like))


def of_rows(
    compute: Callable[..., cupy.ndarray],
    rows: cupy.ndarray,
    *others: cupy.ndarray,
    whole: tuple[cupy.ndarray, ...] = (),
) -> cupy.ndarray:
    """The rows that `compute` makes of those of some arrays: on one device its result, else they lie beside.

    compute: CuPy's calls on views of the arrays, and on what it gets whole. The first array decides.
    """
    group, runs = current_group(), cut_runs(rows)
    if group is None:
        return compute(rows, *others, *whole)
    if not runs:
        return group.kept_on_first(on_rows(compute, rows, *others, whole=whole)[0])
    results: list[cupy.ndarray] = []

    def put(own: cupy.ndarray, *arrays: cupy.ndarray) -> None:
        made = compute(own, *arrays, *(here(each) for each in whole))
        if not results:
            shape = (len(rows), *made.shape[1:])
            results.append(group.empty((runs, prod(shape) // runs), made.dtype).reshape(shape))
        first = (own.data.ptr - rows.data.ptr) // rows.strides[0]
        here(results[0][first : first + len(own)])[...] = made

    on_own_rows(put, rows, *others)
    return results[0]


def on_rows(
    compute: Callable[..., T],
    rows: cupy.ndarray,
    *others: cupy.ndarray,
    whole: tuple[cupy.ndarray, ...] = (),
) -> list[T]:
    """Results of `compute` on rows of some arrays, each device on its own, and on what it gets whole."""
    return on_own_rows(lambda *own: compute(*own, *(here(each) for each in whole)), rows, *others)
