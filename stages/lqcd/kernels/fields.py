"""Memory of lattice fields: code above the kernels makes fields here and nowhere else."""

from __future__ import annotations

from types import ModuleType

from numpy.typing import DTypeLike

from stages.lqcd.kernels.dispatch import Array, array_module


def empty_field(shape: tuple[int, ...], dtype: DTypeLike, xp: ModuleType) -> Array:
    """A C-contiguous field in the library `xp`, not filled."""
    return xp.empty(shape, dtype)


def zero_field(shape: tuple[int, ...], dtype: DTypeLike, xp: ModuleType) -> Array:
    """A C-contiguous field of zeros in the library `xp`."""
    return xp.zeros(shape, dtype)


def field_like(field: Array) -> Array:
    """A field of the shape, dtype and library of another, not filled."""
    return empty_field(field.shape, field.dtype, array_module(field))


def zeros_like(field: Array) -> Array:
    """A field of zeros of the shape, dtype and library of another."""
    return zero_field(field.shape, field.dtype, array_module(field))


def contiguous(field: Array) -> Array:
    """The field itself where it is C-contiguous, as kernels need it, or a copy that is."""
    if field.flags.c_contiguous:
        return field
    return copied(field)


def copied(field: Array) -> Array:
    """A C-contiguous copy of a field."""
    copy = field_like(field)
    copy[...] = field
    return copy
