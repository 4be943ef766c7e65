"""Conversions in NumPy; kernels of fields in few bits go through complex64, which costs a processor less."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.short_numbers import (
    LARGEST,
    HalfField,
    Numbers,
    ShortField,
    decoded,
    encoded,
    put,
    scale_for,
    whole,
)

NarrowField: TypeAlias = HalfField | ShortField

CODE, MANTISSA, EXPONENT_AT = np.uint32(0xFFFFF), np.uint32(0x7FFFFF), np.uint32(23)
"""Bits of a code in a word, of a float's mantissa, and where its exponent begins."""


def to_half(field: NDArray, out: HalfField) -> None:
    parts = field.view(np.float32).reshape(*field.shape, 2)
    out.scales[...] = scale_for(np.abs(parts).max(axis=(1, 3)))
    out.codes[...] = encoded(parts, out.scales[:, None, :, None])


def from_half(field: HalfField, out: NDArray) -> None:
    out[...] = decoded(field.codes, field.scales[:, None, :, None]).view(np.complex64)[..., 0]


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


def put_columns(field: NarrowField, values: NDArray, columns: NDArray[np.bool_]) -> None:
    """Put values into these columns of a field; the others keep their codes."""
    if isinstance(field, HalfField):
        chosen = np.ascontiguousarray(values[:, :, columns])
        half = HalfField(np.empty((*chosen.shape, 2), np.uint16), np.empty(chosen.shape[::2], np.float32))
        to_half(chosen, half)
        field.codes[:, :, columns], field.scales[:, columns] = half.codes, half.scales
        return
    short = ShortField(np.empty_like(field.words), field.bits)
    to_short(values, field.bits, short)
    field.words[:, columns] = short.words[:, columns]


def through_single(
    dslash: Callable[..., object],
    packed: object,
    x: Numbers,
    out: Numbers,
    diagonal: Numbers | None = None,
    **terms: object,
) -> None:
    """`dslash`, a kernel of complex64 fields, applied to fields in few bits as a GPU does it."""
    values, added = whole(x), None if diagonal is None else whole(diagonal)
    result = out if isinstance(out, np.ndarray) else np.empty_like(values)
    dslash(packed, values, result, diagonal=added, **terms)
    if not isinstance(out, np.ndarray):
        put(out, result)
