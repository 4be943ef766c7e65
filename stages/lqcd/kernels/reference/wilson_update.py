"""The terms one after the other, those in 16 bits through single precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.lqcd.kernels.cpu.half_field import from_half, to_half
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.half_field import HalfField
from stages.lqcd.kernels.reference.clover import PackedClover
from stages.lqcd.kernels.reference.wilson_dslash import PackedLinks, wilson_dslash


def wilson_update(
    packed: PackedLinks,
    x: Array | HalfField,
    out: Any,
    *,
    own: Array | HalfField,
    source: Array | HalfField | None,
    a: complex,
    b: complex,
    c: complex,
    hop_clover: PackedClover | None,
) -> Any:
    before, added = _whole(own), 0 if source is None else c * _whole(source)
    hop = wilson_dslash(packed, _whole(x), np.empty_like(before), hop_clover=hop_clover)
    result = (a * before + b * hop + added).astype(packed.dtype)
    if isinstance(out, HalfField):
        return to_half(result, out)
    out[...] = result
    return out


def _whole(field: Array | HalfField) -> Array:
    return from_half(field) if isinstance(field, HalfField) else field
