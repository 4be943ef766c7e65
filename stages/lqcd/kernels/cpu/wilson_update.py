"""The terms one after the other: on processors smoothers take powers of the operator instead."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.clover import PackedClover
from stages.lqcd.kernels.cpu.half_field import from_half, to_half
from stages.lqcd.kernels.cpu.wilson_dslash import PackedLinks, wilson_dslash
from stages.lqcd.kernels.half_field import HalfField


def wilson_update(
    packed: PackedLinks,
    x: NDArray | HalfField,
    out: Any,
    *,
    own: NDArray | HalfField,
    source: NDArray | HalfField | None,
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


def _whole(field: NDArray | HalfField) -> NDArray:
    return from_half(field) if isinstance(field, HalfField) else field
