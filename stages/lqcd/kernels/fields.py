"""Memory of lattice fields: code above the kernels makes fields here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from types import ModuleType
from typing import TypeVar

import numpy as np
from numpy.typing import DTypeLike

from stages.lqcd.kernels.dispatch import Array, array_module, implementation_of

T = TypeVar("T")


def empty_field(shape: tuple[int, ...], dtype: DTypeLike, xp: ModuleType) -> Array:
    """A C-contiguous field in the library `xp`, not filled."""
    if xp is np:
        return np.empty(shape, dtype)
    return implementation_of("fields.empty_field", "cuda")(shape, dtype)


def zero_field(shape: tuple[int, ...], dtype: DTypeLike, xp: ModuleType) -> Array:
    """A C-contiguous field of zeros in the library `xp`."""
    if xp is np:
        return np.zeros(shape, dtype)
    return implementation_of("fields.zero_field", "cuda")(shape, dtype)


def slices_field(shape: tuple[int, ...], dtype: DTypeLike, xp: ModuleType) -> Array:
    """`empty_field` of the slices of a lattice, ``[time, ...]``, whole ones on each of several GPUs."""
    return empty_field((prod(shape),), dtype, xp).reshape(shape)


def empty_rows(like: Array, shape: tuple[int, ...], dtype: DTypeLike, runs: int) -> Array:
    """A C-contiguous array in the library of another, not filled, whose rows are the sites of a grid.

    runs: where GPUs share the lattice, equal runs of rows that are cut in t, those of each parity or all;
    without any the array lies on the first GPU.
    """
    if array_module(like) is np:
        return np.empty(shape, dtype)
    return implementation_of("fields.empty_rows", "cuda")(shape, dtype, runs)


def zero_rows(like: Array, shape: tuple[int, ...], dtype: DTypeLike, runs: int) -> Array:
    """An array of zeros in the library of another, whose rows are the sites of a grid: see `empty_rows`."""
    if array_module(like) is np:
        return np.zeros(shape, dtype)
    return implementation_of("fields.zero_rows", "cuda")(shape, dtype, runs)


def of_rows(compute: Callable[..., Array], *arrays: Array, whole: tuple[Array, ...] = ()) -> Array:
    """The rows that `compute` makes of those of some arrays, each GPU its own where they share the lattice.

    compute: expressions of NumPy or CuPy of rows of the arrays, and of others that it gets whole; it may be
    called several times, for some of the rows each. The arrays have a row for each site of a grid, and the
    first one decides where the result lies.
    """
    if array_module(arrays[0]) is np:
        return compute(*arrays, *whole)
    return implementation_of("fields.of_rows", "cuda")(compute, *arrays, whole=whole)


def on_rows(compute: Callable[..., T], *arrays: Array, whole: tuple[Array, ...] = ()) -> list[T]:
    """Answers of `compute` for rows of some arrays, each GPU its own: see `of_rows`."""
    if array_module(arrays[0]) is np:
        return [compute(*arrays, *whole)]
    return implementation_of("fields.on_rows", "cuda")(compute, *arrays, whole=whole)


def slices_like(field: Array, shape: tuple[int, ...] | None = None, dtype: DTypeLike | None = None) -> Array:
    """`field_like` of the slices of a lattice, ``[time, ...]``."""
    extents = field.shape if shape is None else shape
    return slices_field(extents, dtype or field.dtype, array_module(field))


def on_one_gpu(backend: str) -> AbstractContextManager[None]:
    """A block for arrays that are no fields: they lie on the first GPU, which works alone."""
    return implementation_of("fields.on_one_gpu", "cuda")() if backend == "cuda" else nullcontext()


def field_like(field: Array, shape: tuple[int, ...] | None = None, dtype: DTypeLike | None = None) -> Array:
    """A field of the library, and if not said otherwise of the shape and dtype, of another; not filled."""
    extents = field.shape if shape is None else shape
    if array_module(field) is np:
        return np.empty(extents, dtype or field.dtype)
    return implementation_of("fields.field_like", "cuda")(field, extents, dtype or field.dtype)


def zeros_like(field: Array, shape: tuple[int, ...] | None = None, dtype: DTypeLike | None = None) -> Array:
    """A field of zeros of the library, and if not said otherwise of the shape and dtype, of another."""
    extents = field.shape if shape is None else shape
    if array_module(field) is np:
        return np.zeros(extents, dtype or field.dtype)
    return implementation_of("fields.zeros_like", "cuda")(field, extents, dtype or field.dtype)


def contiguous(field: Array) -> Array:
    """The field itself where it is C-contiguous, as kernels need it, or a copy that is."""
    if field.flags.c_contiguous:
        return field
    return copied(field)


def contiguous_slices(field: Array) -> Array:
    """`contiguous` of the slices of a lattice, ``[time, ...]``."""
    if field.flags.c_contiguous:
        return field
    copy = slices_like(field)
    assign(copy, field)
    return copy


def copied(field: Array) -> Array:
    """A C-contiguous copy of a field."""
    copy = field_like(field)
    assign(copy, field)
    return copy


def converted(field: Array, dtype: DTypeLike) -> Array:
    """The field in this precision and C-contiguous: itself where it is so, or a new one."""
    if field.dtype == dtype:
        return contiguous(field)
    copy = field_like(field, dtype=dtype)
    assign(copy, field)
    return copy


def assign(out: Array, source: Array | complex) -> None:
    """``out[...] = source``: fields of one shape, or leading or other columns of such, or a number.

    They may be of another precision.
    """
    if array_module(out) is np:
        out[...] = source
    else:
        implementation_of("fields.assign", "cuda")(out, source)


def side_by_side(blocks: Sequence[Array]) -> Array:
    """Blocks of columns ``[*, N]`` of one shape as ``[*, block, N]``."""
    first = blocks[0]
    together = field_like(first, (*first.shape[:-1], len(blocks), first.shape[-1]))
    for number, block in enumerate(blocks):
        assign(together[..., number, :], block)
    return together


def repeat(out: Array, source: Array) -> None:
    """``out[i] = source`` for every entry along the first axis."""
    if array_module(out) is np:
        out[...] = source
    else:
        implementation_of("fields.repeat", "cuda")(out, source)
