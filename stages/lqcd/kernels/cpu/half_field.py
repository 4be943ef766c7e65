"""Conversions in NumPy; dslashes of 16-bit fields go through complex64: 16 bits gain a processor little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.expressions import largest_parts as largest_parts
from stages.lqcd.kernels.half_field import HalfField, decoded, encoded, scale_for


def to_half(field: NDArray, out: HalfField | None = None) -> HalfField:
    parts = field.view(np.float32).reshape(*field.shape, 2)
    scales = scale_for(np.abs(parts).max(axis=(1, 3)))
    codes = encoded(parts, scales[:, None, :, None])
    if out is None:
        return HalfField(codes, scales)
    out.codes[...], out.scales[...] = codes, scales
    return out


def from_half(field: HalfField, out: NDArray | None = None) -> NDArray:
    result = np.empty(field.shape, np.complex64) if out is None else out
    result[...] = decoded(field.codes, field.scales[:, None, :, None]).view(np.complex64)[..., 0]
    return result


def through_single(
    dslash: Callable[..., NDArray], packed: Any, x: HalfField, out: Any, diagonal: Any = None, **terms: Any
) -> Any:
    """`dslash`, a package's kernel for complex64 fields, applied to fields of 16 bits as a GPU does it."""
    values = from_half(x)
    terms["diagonal"] = from_half(diagonal) if isinstance(diagonal, HalfField) else diagonal
    if not isinstance(out, HalfField):
        return dslash(packed, values, out, **terms)
    return to_half(dslash(packed, values, np.empty_like(values), **terms), out)
