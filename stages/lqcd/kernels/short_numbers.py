"""Fields in few bits: spinors of 16 bits a number, colour vectors of 16 bytes; conversions to and from them.

A `HalfField` holds spinors: value = scale (code - 32768), codes 1 to 65535. The scale is the largest real or
imaginary part of the site's 12 components over 32767, rounded up to 15 significant bits, so that decoding
rounds once. Numbers keep an absolute error of half a scale: at most 1.6e-5 of the largest part of their site.
Largest parts from 4e-34 to 3e38 are kept; smaller ones become zero.

A `ShortField` holds colour vectors, what is read, written and added to in the recurrence of a double-half
solve. A vector, the 6 real numbers of a site and right-hand side, lies in four 32-bit words, in one of two
codes:

    16 bits   words 0 to 2 hold a colour each, real part in the low half, word 3 a scale, a power of two:
              value = scale (code - 2^15). Few instructions decode it: for what a product reads 16 times.
    20 bits   words 0 to 3 hold in their low 20 bits Re v0, Im v0, Re v1, Im v1; the upper 12 bits of words 0
              and 1 hold Re v2, then 4 bits of an exponent, those of words 2 and 3 Im v2 and the other 4:
              value = 2^(exponent - 127) (code - 2^19). For what rounding would spoil: the residual and A p.

The scale is the least power of two by which the largest part has a code. An error is at most half a unit:
3.1e-5 and 1.9e-6 of the largest part (complex64: 6e-8 of each part). Largest parts from 4e-34 (16 bits) or
7e-33 (20) to 1e36 are kept so; of smaller ones fewer bits are.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.fields import assign, converted, empty_field, field_like
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS
from stages.lqcd.kernels.lane_blas import lane_take
from stages.lqcd.kernels.operands import check_array

CODE_ZERO = 32768
LARGEST_CODE = 32767
SPARE_BITS = np.uint32(0x1FF)
"""Bits of a float's 24 that the scale of a HalfField does without."""

WORDS = 4
BITS = (16, 20)
LARGEST = {16: (1 << 15) - 1, 20: (1 << 19) - 1}
"""Largest code of a ShortField, counted from that of zero, by bits."""


@dataclass(frozen=True)
class HalfField:
    """Spinors on one parity: codes uint16 ``[site, 12, N, 2]``, scales float32 ``[site, N]``."""

    codes: Array
    scales: Array

    @classmethod
    def empty(cls, sites: int, n: int, xp: ModuleType) -> HalfField:
        """A field with room for `n` right-hand sides in arrays of `xp`, NumPy or CuPy."""
        codes = empty_field((sites, COMPONENTS, n, 2), np.uint16, xp)
        return cls(codes, empty_field((sites, n), np.float32, xp))

    @property
    def shape(self) -> tuple[int, ...]:
        """``(sites, 12, N)``."""
        return self.codes.shape[:3]

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


@dataclass(frozen=True)
class ShortField:
    """Colour vectors on one parity: words uint32 ``[site, N, 4]`` of codes of 16 or 20 bits."""

    words: Array
    bits: int

    @classmethod
    def empty(cls, sites: int, n: int, bits: int, xp: ModuleType) -> ShortField:
        """A field with room for `n` right-hand sides in an array of `xp`, NumPy or CuPy."""
        return cls(empty_field((sites, n, WORDS), np.uint32, xp), bits)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(sites, 3, N)``."""
        return self.words.shape[0], COLOURS, self.words.shape[1]

    @property
    def nbytes(self) -> int:
        return self.words.nbytes


Spinors: TypeAlias = Array | HalfField
Vectors: TypeAlias = Array | ShortField
Numbers: TypeAlias = Array | HalfField | ShortField

SpinorField = TypeVar("SpinorField", Array, HalfField)
VectorField = TypeVar("VectorField", Array, ShortField)
Field = TypeVar("Field", Array, HalfField, ShortField)


def numbers_like(field: Field, bits: int = 16) -> Field:
    """A field of the shape, kind and library of another, not filled; of short ones with these bits."""
    like: Any
    if isinstance(field, HalfField):
        like = HalfField(field_like(field.codes), field_like(field.scales))
    elif isinstance(field, ShortField):
        like = ShortField(field_like(field.words), bits)
    else:
        like = field_like(field)
    return like


def take(field: Field, lanes: Array) -> Field:
    """The right-hand sides of these numbers of a field, with their codes: a new one."""
    taken: Any
    if isinstance(field, HalfField):
        words = field.codes.view(np.uint32).reshape(field.shape)
        codes = lane_take(words, lanes)[..., None].view(np.uint16)
        taken = HalfField(codes, lane_take(field.scales, lanes))
    elif isinstance(field, ShortField):
        vectors = lane_take(field.words.view(np.complex128)[..., 0], lanes)
        taken = ShortField(vectors[..., None].view(field.words.dtype), field.bits)
    else:
        taken = lane_take(field, lanes)
    return taken


def whole(field: Numbers) -> Array:
    """The complex64 numbers that a field holds; an array as it is."""
    if isinstance(field, HalfField):
        return from_half(field)
    return from_short(field) if isinstance(field, ShortField) else field


def put(field: Numbers, values: Array) -> None:
    """``field = values``, rounded to what it holds."""
    if isinstance(field, HalfField):
        to_half(converted(values, np.complex64), field)
    elif isinstance(field, ShortField):
        to_short(converted(values, np.complex64), field.bits, field)
    else:
        assign(field, values)


def to_half(field: Array, out: HalfField | None = None) -> HalfField:
    """complex64 ``[site, 12, N]`` in 16 bits, a scale per site and right-hand side.

    Raises InputError for other fields.
    """
    if field.ndim != 3 or field.shape[1] != COMPONENTS:
        raise InputError(f"a field to halve has shape (sites, 12, right-hand sides), got {field.shape}")
    check_array("field", field, field.shape, np.dtype(np.complex64))
    if out is None:
        out = HalfField.empty(field.shape[0], field.shape[2], array_module(field))
    check_half_field("out", out, field.shape)
    kernel("short_numbers.to_half", type(field))(field, out)
    return out


def from_half(field: HalfField, out: Array | None = None) -> Array:
    """The complex64 ``[site, 12, N]`` that a HalfField holds."""
    check_half_field("field", field, field.shape)
    if out is None:
        out = empty_field(field.shape, np.complex64, array_module(field.codes))
    check_array("out", out, field.shape, np.dtype(np.complex64))
    kernel("short_numbers.from_half", type(out))(field, out)
    return out


def to_short(field: Array, bits: int, out: ShortField | None = None) -> ShortField:
    """complex64 ``[site, 3, N]`` in codes of 16 or 20 bits. Raises InputError for other fields."""
    if bits not in BITS:
        raise InputError(f"codes of a short field have 16 or 20 bits, got {bits}")
    if field.ndim != 3:
        raise InputError(f"a field to shorten has shape (sites, 3, right-hand sides), got {field.shape}")
    check_array("field", field, (field.shape[0], COLOURS, field.shape[2]), np.dtype(np.complex64))
    if out is None:
        out = ShortField.empty(field.shape[0], field.shape[2], bits, array_module(field))
    check_short_field("out", out, field.shape, bits)
    kernel("short_numbers.to_short", type(field))(field, bits, out)
    return out


def from_short(field: ShortField, out: Array | None = None) -> Array:
    """The complex64 ``[site, 3, N]`` that a ShortField holds."""
    check_short_field("field", field, field.shape, field.bits)
    if out is None:
        out = field_like(field.words, field.shape, np.complex64)
    check_array("out", out, field.shape, np.dtype(np.complex64))
    kernel("short_numbers.from_short", type(out))(field, out)
    return out


def scale_for(largest: Array) -> Array:
    """The scale of 16-bit numbers up to `largest` in absolute value, float32."""
    xp = array_module(largest)
    bits = (largest.astype(np.float32) / np.float32(LARGEST_CODE)).view(np.uint32)
    scale = ((bits + SPARE_BITS) & ~SPARE_BITS).view(np.float32)
    return xp.where(scale < np.finfo(np.float32).tiny, np.float32(0), scale)


def largest_parts(parts: Array) -> Array:
    """The largest absolute value of real parts ``[site, 3, N, 2]`` at each site: ``[site, N]``."""
    return kernel("short_numbers.largest_parts", type(parts))(parts)


def encoded(parts: Array, scale: Array) -> Array:
    """Codes, uint16, of real `parts`; `scale` broadcasts against them."""
    xp = array_module(parts)
    inverse = xp.where(scale > 0, np.float32(1) / xp.where(scale > 0, scale, np.float32(1)), np.float32(0))
    return (xp.rint(parts.astype(np.float32) * inverse) + CODE_ZERO).astype(np.uint16)


def decoded(codes: Array, scale: Array) -> Array:
    """The real numbers, float32, that 16-bit codes stand for."""
    return (codes.astype(np.float32) - np.float32(CODE_ZERO)) * scale


def check_half_field(name: str, field: Any, shape: tuple[int, ...]) -> None:
    """Raise InputError unless `field` is a HalfField of this shape."""
    if not isinstance(field, HalfField):
        raise InputError(f"{name} must be a HalfField, got {type(field).__name__}: convert it with to_half")
    check_array(f"{name}.codes", field.codes, (*shape, 2), np.dtype(np.uint16))
    check_array(f"{name}.scales", field.scales, (shape[0], shape[2]), np.dtype(np.float32))


def check_short_field(name: str, field: Any, shape: tuple[int, ...], bits: int) -> None:
    """Raise InputError unless `field` is a ShortField of this shape and so many bits."""
    if not isinstance(field, ShortField):
        raise InputError(f"{name} must be a ShortField, got {type(field).__name__}: convert it with to_short")
    if field.bits != bits:
        raise InputError(f"{name} must have codes of {bits} bits, got {field.bits}")
    check_array(f"{name}.words", field.words, (shape[0], shape[2], WORDS), np.dtype(np.uint32))
