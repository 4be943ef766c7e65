"""Arrays with a row for each site of a grid: where they lie, and the work of kernels on what lies there.

Rows are those of the first axis, in equal runs, each of which is cut in t: the sites of a parity, those of
both, the even ones first, or all sites of a grid without parities.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeVar

import cupy
from numpy.typing import DTypeLike

from stages.lqcd.kernels.cuda.devices.group import OnFirst, current_group
from stages.lqcd.kernels.cuda.devices.own_rows import here, on_own_rows
from stages.lqcd.kernels.cuda.devices.partition import PAGE, SiteWork
from stages.lqcd.kernels.cuda.devices.spans import span_of

T = TypeVar("T")


def cut_runs(array: cupy.ndarray) -> int:
    """Runs of rows of an array that are cut in t, by where it lies; 0 where it lies on one device."""
    group, span = current_group(), span_of(array)
    if group is None or span is None:
        return 0
    begin, end = array.data.ptr, array.data.ptr + len(array) * array.strides[0]
    inside = [min(end, start + size) - max(begin, start) for _, start, size in span.segments()]
    return max(1, sum(2 * size >= PAGE for size in inside) // group.partition.parts)


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
