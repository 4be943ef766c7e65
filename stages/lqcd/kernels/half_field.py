"""16-bit spinors: codes with one float scale per site and right-hand side, and conversions to and from them.

value = scale (code - 32768), codes 1 to 65535. The scale is the largest real or imaginary part of the site's
12 components over 32767, rounded up to 15 significant bits, so that decoding
rounds once. Numbers keep an absolute error of half a scale: at most 1.6e-5 of the largest part of their site.
Largest parts from 4e-34 to 3e38 are kept; smaller ones become zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.fields import empty_field, field_like
from stages.lqcd.kernels.lane_blas import lane_take
from stages.lqcd.kernels.operands import check_array

COMPONENTS = 12
CODE_ZERO = 32768
LARGEST_CODE = 32767
SPARE_BITS = np.uint32(0x1FF)
"""Bits of a float's 24 that a scale does without."""


@dataclass(frozen=True)
class HalfField:
    """A field on one parity: codes uint16 ``[site, 12, N, 2]``, scales float32 ``[site, N]``."""

    codes: Array
    scales: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """``(sites, 12, N)``."""
        return self.codes.shape[:3]

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


Field = TypeVar("Field", Array, HalfField)


def empty(library: ModuleType, sites: int, n: int) -> HalfField:
    """A field with room for `n` right-hand sides in arrays of `library`, NumPy or CuPy."""
    codes = empty_field((sites, COMPONENTS, n, 2), np.uint16, library)
    return HalfField(codes, empty_field((sites, n), np.float32, library))


def spinors_like(field: Field) -> Field:
    """A field of the shape, kind and library of another, not filled."""
    if isinstance(field, HalfField):
        half: Any = HalfField(field_like(field.codes), field_like(field.scales))
        return half
    return field_like(field)


def take(field: HalfField, lanes: Array) -> HalfField:
    """The right-hand sides of these numbers of a field, with their codes: a new one."""
    sites, components, n = field.shape
    words = field.codes.view(np.uint32).reshape(sites, components, n)
    codes = lane_take(words, lanes)[..., None].view(np.uint16)
    return HalfField(codes, lane_take(field.scales, lanes))


def to_half(field: Array, out: HalfField | None = None) -> HalfField:
    """complex64 ``[site, 12, N]`` in 16 bits, a scale per site and right-hand side.

    Raises InputError for other fields.
    """
    if field.ndim != 3 or field.shape[1] != COMPONENTS:
        raise InputError(f"a field to halve has shape (sites, 12, right-hand sides), got {field.shape}")
    check_array("field", field, field.shape, np.dtype(np.complex64))
    if out is not None:
        check_half_field("out", out, field.shape)
    return kernel("half_field.to_half", type(field))(field, out)


def from_half(field: HalfField, out: Array | None = None) -> Array:
    """The complex64 ``[site, 12, N]`` that a HalfField holds."""
    check_half_field("field", field, field.shape)
    if out is not None:
        check_array("out", out, field.shape, np.dtype(np.complex64))
    return kernel("half_field.from_half", type(field.codes))(field, out)


def scale_for(largest: Array) -> Array:
    """The scale of numbers up to `largest` in absolute value, float32."""
    xp = array_module(largest)
    bits = (largest.astype(np.float32) / np.float32(LARGEST_CODE)).view(np.uint32)
    scale = ((bits + SPARE_BITS) & ~SPARE_BITS).view(np.float32)
    return xp.where(scale < np.finfo(np.float32).tiny, np.float32(0), scale)


def largest_parts(parts: Array) -> Array:
    """The largest absolute value of real parts ``[site, 3, N, 2]`` at each site: ``[site, N]``."""
    return kernel("half_field.largest_parts", type(parts))(parts)


def encoded(parts: Array, scale: Array) -> Array:
    """Codes, uint16, of real `parts`; `scale` broadcasts against them."""
    xp = array_module(parts)
    inverse = xp.where(scale > 0, np.float32(1) / xp.where(scale > 0, scale, np.float32(1)), np.float32(0))
    return (xp.rint(parts.astype(np.float32) * inverse) + CODE_ZERO).astype(np.uint16)


def decoded(codes: Array, scale: Array) -> Array:
    """The real numbers, float32, that codes stand for."""
    return (codes.astype(np.float32) - np.float32(CODE_ZERO)) * scale


def check_half_field(name: str, field: Any, shape: tuple[int, ...]) -> None:
    """Raise InputError unless `field` is a HalfField of this shape."""
    if not isinstance(field, HalfField):
        raise InputError(f"{name} must be a HalfField, got {type(field).__name__}: convert it with to_half")
    check_array(f"{name}.codes", field.codes, (*shape, 2), np.dtype(np.uint16))
    check_array(f"{name}.scales", field.scales, (shape[0], shape[2]), np.dtype(np.float32))


def check_half_fields(packed: Any, x: Any, out: Any, diagonal: Any) -> None:
    """Raise InputError unless x is a HalfField and out and the diagonal both are, or both complex64.

    All are ``[site, 12, N]``, and x is not out.
    """
    if packed.dtype != np.complex64:
        raise InputError(f"a HalfField needs complex64 links, got {packed.dtype}")
    shape = (packed.lattice.half_volume, COMPONENTS, x.shape[2])
    check_half_field("x", x, shape)
    for name, field in (("out", out), ("diagonal", diagonal)):
        if isinstance(out, HalfField) and (name == "out" or field is not None):
            check_half_field(name, field, shape)
        elif field is not None:
            check_array(name, field, shape, np.dtype(np.complex64))
    if isinstance(out, HalfField) and array_module(x.codes).may_share_memory(out.codes, x.codes):
        raise InputError("out of the dslash must not be its input x: give another field")
