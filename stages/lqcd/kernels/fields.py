"""Memory of lattice fields: code above the kernels makes fields here and nowhere else."""

from __future__ import annotations

from math import prod
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike

from stages.lqcd.kernels.dispatch import Array, array_module, implementation_of
from stages.lqcd.lattice.geometry import Lattice


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


def spread(lattice: Lattice, backend: str) -> None:
    """Nothing is left to do for a stage: the engine knows its lattice (`stages.gpus.sharing`)."""


def field_like(field: Array, shape: tuple[int, ...] | None = None, dtype: DTypeLike | None = None) -> Array:
    """A field of the library, and if not said otherwise of the shape and dtype, of another; not filled."""
    extents = field.shape if shape is None else shape
    return empty_field(extents, dtype or field.dtype, array_module(field))


def zeros_like(field: Array, shape: tuple[int, ...] | None = None, dtype: DTypeLike | None = None) -> Array:
    """A field of zeros of the library, and if not said otherwise of the shape and dtype, of another."""
    extents = field.shape if shape is None else shape
    return zero_field(extents, dtype or field.dtype, array_module(field))


def contiguous(field: Array) -> Array:
    """The field itself where it is C-contiguous, as kernels need it, or a copy that is."""
    if field.flags.c_contiguous:
        return field
    return copied(field)


def copied(field: Array) -> Array:
    """A C-contiguous copy of a field."""
    copy = field_like(field)
    assign(copy, field)
    return copy


def assign(out: Array, source: Array | complex) -> None:
    """``out[...] = source``: fields of one shape, or leading or other columns of such, or a number."""
    if array_module(out) is np:
        out[...] = source
    else:
        implementation_of("fields.assign", "cuda")(out, source)


def repeat(out: Array, source: Array) -> None:
    """``out[i] = source`` for every entry along the first axis, as time slices are."""
    if array_module(out) is np:
        out[...] = source
    else:
        implementation_of("fields.repeat", "cuda")(out, source)
