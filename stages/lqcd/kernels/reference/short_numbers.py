"""Conversions by the definitions of the codes, in double: no code of theirs is shared with other packages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.kernels.short_numbers import CODE_ZERO, LARGEST, LARGEST_CODE, HalfField, Numbers, ShortField

SCALE_BITS = 15
"""Significant bits of the scale of spinors."""

SMALLEST = -126
"""Power of two of the smallest scale, a normal number of single precision."""


def to_half(field: NDArray, out: HalfField) -> None:
    parts = np.stack([field.real, field.imag], axis=-1).astype(float)
    mantissa, exponent = np.frexp(abs(parts).max(axis=(1, 3)) / LARGEST_CODE)
    scale = np.ldexp(np.ceil(np.ldexp(mantissa, SCALE_BITS)), exponent - SCALE_BITS)
    scale[scale < 2.0**SMALLEST] = 0
    unit = np.where(scale > 0, scale, np.inf)[:, None, :, None]
    out.scales[...], out.codes[...] = scale, np.rint(parts / unit) + CODE_ZERO


def from_half(field: HalfField, out: NDArray) -> None:
    parts = (field.codes.astype(float) - CODE_ZERO) * field.scales[:, None, :, None]
    out[...] = parts[..., 0] + 1j * parts[..., 1]


def to_short(field: NDArray, bits: int, out: ShortField) -> None:
    largest = np.maximum(abs(field.real), abs(field.imag)).max(axis=1).astype(float) / LARGEST[bits]
    mantissa, exponent = np.frexp(largest)
    power = np.where(largest > 0, np.maximum(exponent - (mantissa == 0.5), SMALLEST), SMALLEST)
    scale = np.ldexp(1.0, power)[:, None]
    re, im = (np.rint(part / scale).astype(np.int64) + LARGEST[bits] + 1 for part in (field.real, field.imag))
    biased = power + 127
    if bits == 16:
        words = [re[:, colour] | im[:, colour] << 16 for colour in range(COLOURS)]
        words.append(biased << 23)
    else:
        words = [re[:, 0], im[:, 0], re[:, 1], im[:, 1]]
        for first, last, part in ((0, re[:, 2], biased % 16), (2, im[:, 2], biased // 16)):
            words[first] |= last % 2**12 << 20
            words[first + 1] |= last // 2**12 << 20 | part << 28
    out.words[...] = np.stack(words, axis=-1)


def from_short(field: ShortField, out: NDArray) -> None:
    words, zero = field.words.astype(np.int64), LARGEST[field.bits] + 1
    if field.bits == 16:
        re, im = words[..., :COLOURS] % 2**16, words[..., :COLOURS] >> 16
        biased = words[..., 3] >> 23
    else:
        low, high, top = words % 2**20, words >> 20, words >> 28
        last = [high[..., first] | high[..., first + 1] % 2**8 << 12 for first in (0, 2)]
        re = np.stack([low[..., 0], low[..., 2], last[0]], axis=-1)
        im = np.stack([low[..., 1], low[..., 3], last[1]], axis=-1)
        biased = top[..., 1] | top[..., 3] << 4
    values = ((re - zero) + 1j * (im - zero)) * np.ldexp(1.0, biased - 127)[..., None]
    out[...] = values.swapaxes(1, 2)


def whole(field: Numbers) -> NDArray:
    """The numbers that a field holds; an array as it is."""
    if isinstance(field, np.ndarray):
        return field
    values = np.empty(field.shape, np.complex64)
    if isinstance(field, HalfField):
        from_half(field, values)
    else:
        from_short(field, values)
    return values


def put(field: Numbers, values: NDArray, columns: NDArray[np.bool_] | slice = slice(None)) -> None:
    """``field = values`` in these columns, rounded to what it holds."""
    if isinstance(field, HalfField):
        chosen = values[..., columns]
        half = HalfField(np.empty((*chosen.shape, 2), np.uint16), np.empty(chosen.shape[::2], np.float32))
        to_half(chosen, half)
        field.codes[:, :, columns], field.scales[:, columns] = half.codes, half.scales
    elif isinstance(field, ShortField):
        chosen = values[..., columns]
        short = ShortField(np.empty((*chosen.shape[::2], 4), np.uint32), field.bits)
        to_short(chosen, field.bits, short)
        field.words[:, columns] = short.words
    else:
        field[..., columns] = values[..., columns]
