"""Short fields in NumPy: their kernels go through complex64, 16 bytes a vector gain a processor nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.short_field import LARGEST, ShortField

CODE, MANTISSA, EXPONENT_AT = np.uint32(0xFFFFF), np.uint32(0x7FFFFF), np.uint32(23)
"""Bits of a code in a word, of a float's mantissa, and where its exponent begins."""


def to_short(field: NDArray, bits: int, out: ShortField) -> None:
    parts = np.ascontiguousarray(field.transpose(0, 2, 1)).view(np.float32)  # [site, rhs, colour and part]
    largest = np.abs(parts).max(axis=2) * (np.float32(1) / np.float32(LARGEST[bits]))
    exponent = np.maximum((largest.view(np.uint32) + MANTISSA) >> EXPONENT_AT, np.uint32(1))
    inverse = ((np.uint32(254) - exponent) << EXPONENT_AT).view(np.float32)
    codes = (np.rint(parts * inverse[..., None]) + (LARGEST[bits] + 1)).astype(np.uint32)
    words = out.words
    if bits == 16:
        words[..., :3] = codes[..., 0::2] | codes[..., 1::2] << np.uint32(16)
        words[..., 3] = exponent << EXPONENT_AT
        return
    nibbles = np.stack([exponent & np.uint32(15), exponent >> np.uint32(4)], axis=-1)
    words[...] = codes[..., :4]
    words[..., 0::2] |= codes[..., 4:] << np.uint32(20)
    words[..., 1::2] |= codes[..., 4:] >> np.uint32(12) << np.uint32(20) | nibbles << np.uint32(28)


def from_short(field: ShortField, out: NDArray) -> None:
    words = field.words
    if field.bits == 16:
        codes = np.ascontiguousarray(words[..., :3]).view(np.uint16)
        scale = words[..., 3].view(np.float32)
    else:
        last = words[..., 0::2] >> np.uint32(20) | words[..., 1::2] >> np.uint32(8) & np.uint32(0xFF000)
        codes = np.concatenate([words & CODE, last], axis=-1)
        exponent = words[..., 1] >> np.uint32(28) | words[..., 3] >> np.uint32(24) & np.uint32(0xF0)
        scale = (exponent << EXPONENT_AT).view(np.float32)
    parts = (codes.astype(np.float32) - np.float32(LARGEST[field.bits] + 1)) * scale[..., None]
    out[...] = parts.view(np.complex64).transpose(0, 2, 1)


def through_single(
    dslash: Callable[..., NDArray],
    packed: Any,
    x: NDArray | ShortField,
    out: ShortField,
    diagonal: NDArray | ShortField | None,
    **terms: Any,
) -> ShortField:
    """`dslash`, a package's kernel for complex64 fields, with a short field `out` as a GPU does it."""
    values = single(x)
    added = None if diagonal is None else single(diagonal)
    to_short(dslash(packed, values, np.empty_like(values), diagonal=added, **terms), out.bits, out)
    return out


def single(field: NDArray | ShortField) -> NDArray:
    """The complex64 ``[site, 3, N]`` that a ShortField holds; an array as it is."""
    if not isinstance(field, ShortField):
        return field
    out = np.empty(field.shape, np.complex64)
    from_short(field, out)
    return out
