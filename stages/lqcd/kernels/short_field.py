"""Colour vectors in 16 bytes: what is read, written and added to in the recurrence of a double-half solve.

A vector, the 6 real numbers of a site and right-hand side, lies in four 32-bit words, in one of two codes:

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
from typing import Any, TypeVar

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.fields import assign, converted, empty_field, field_like
from stages.lqcd.kernels.operands import check_array

COLOURS, WORDS = 3, 4
BITS = (16, 20)
LARGEST = {16: (1 << 15) - 1, 20: (1 << 19) - 1}
"""Largest code, counted from that of zero, by bits."""


@dataclass(frozen=True)
class ShortField:
    """A field on one parity: words uint32 ``[site, N, 4]`` of codes of 16 or 20 bits."""

    words: Array
    bits: int

    @property
    def shape(self) -> tuple[int, ...]:
        """``(sites, 3, N)``."""
        return self.words.shape[0], COLOURS, self.words.shape[1]

    @property
    def nbytes(self) -> int:
        return self.words.nbytes


Field = TypeVar("Field", Array, ShortField)


def vectors_like(field: Field, bits: int = 16) -> Field:
    """A field of the shape, kind and library of another, not filled; of short ones with these bits."""
    if isinstance(field, ShortField):
        short: Any = ShortField(field_like(field.words), bits)
        return short
    return field_like(field)


def empty(sites: int, n: int, bits: int, xp: ModuleType) -> ShortField:
    """A field with room for `n` right-hand sides in an array of `xp`, NumPy or CuPy."""
    return ShortField(empty_field((sites, n, WORDS), np.uint32, xp), bits)


def to_short(field: Array, bits: int, out: ShortField | None = None) -> ShortField:
    """complex64 ``[site, 3, N]`` in codes of 16 or 20 bits. Raises InputError for other fields."""
    if bits not in BITS:
        raise InputError(f"codes of a short field have 16 or 20 bits, got {bits}")
    if field.ndim != 3:
        raise InputError(f"a field to shorten has shape (sites, 3, right-hand sides), got {field.shape}")
    check_array("field", field, (field.shape[0], COLOURS, field.shape[2]), np.dtype(np.complex64))
    if out is None:
        out = empty(field.shape[0], field.shape[2], bits, array_module(field))
    check_short_field("out", out, field.shape, bits)
    kernel("short_field.to_short", type(field))(field, bits, out)
    return out


def from_short(field: ShortField, out: Array | None = None) -> Array:
    """The complex64 ``[site, 3, N]`` that a ShortField holds."""
    check_short_field("field", field, field.shape, field.bits)
    if out is None:
        out = field_like(field.words, field.shape, np.complex64)
    check_array("out", out, field.shape, np.dtype(np.complex64))
    kernel("short_field.from_short", type(out))(field, out)
    return out


def whole(field: Array | ShortField) -> Array:
    """The complex64 ``[site, 3, N]`` of a ShortField; an array as it is."""
    return from_short(field) if isinstance(field, ShortField) else field


def put(field: Field, values: Array) -> None:
    """``field = values``, rounded to what it holds."""
    if isinstance(field, ShortField):
        to_short(converted(values, np.complex64), field.bits, field)
    else:
        assign(field, values)


def check_short_field(name: str, field: Any, shape: tuple[int, ...], bits: int) -> None:
    """Raise InputError unless `field` is a ShortField of this shape and so many bits."""
    if not isinstance(field, ShortField):
        raise InputError(f"{name} must be a ShortField, got {type(field).__name__}: convert it with to_short")
    if field.bits != bits:
        raise InputError(f"{name} must have codes of {bits} bits, got {field.bits}")
    check_array(f"{name}.words", field.words, (shape[0], shape[2], WORDS), np.dtype(np.uint32))


def check_short_product(packed: Any, x: Any, out: Any, diagonal: Any) -> None:
    """Raise InputError unless a dslash takes x and the diagonal to `out`, another short field.

    Both in 16 bits, or both complex64 to an `out` of 20 bits.
    """
    if packed.dtype != np.complex64:
        raise InputError(f"a ShortField needs complex64 links, got {packed.dtype}")
    if len(x.shape) != 3:
        raise InputError(f"x must have shape (sites, 3, right-hand sides), got {x.shape}")
    shape = (packed.lattice.half_volume, COLOURS, x.shape[2])
    added = {} if diagonal is None else {"diagonal": diagonal}
    if not isinstance(x, ShortField):
        for name, field in ({"x": x} | added).items():
            if isinstance(field, ShortField):
                raise InputError(f"{name} must be complex64 as x is, got a ShortField")
            check_array(name, field, shape, np.dtype(np.complex64))
        check_short_field("out", out, shape, 20)
        return
    for name, field in ({"x": x} | added).items():
        check_short_field(name, field, shape, 16)
    check_short_field("out", out, shape, getattr(out, "bits", 16))
    if array_module(x.words).may_share_memory(out.words, x.words):
        raise InputError("out of the dslash must not be its input x: give another field")
