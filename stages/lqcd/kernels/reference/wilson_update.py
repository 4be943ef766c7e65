"""The terms one after the other, those in 16 bits through single precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from stages.lqcd.kernels.cpu.half_field import from_half, to_half
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.half_field import HalfField
from stages.lqcd.kernels.reference.wilson_dslash import wilson_dslash


def updated_by(
    dslash: Callable[..., Array],
    packed: Any,
    x: Array | HalfField,
    out: Any,
    *,
    own: Array | HalfField,
    source: Array | HalfField | None,
    a: complex,
    b: complex,
    c: complex,
    hop_clover: Any,
) -> Any:
    """The update with hops by this dslash, links and clover matrices packed as it wants them."""
    before, added = _whole(own), 0 if source is None else c * _whole(source)
    hop = dslash(packed, _whole(x), np.empty_like(before), hop_clover=hop_clover)
    result = (a * before + b * hop + added).astype(packed.dtype)
    if isinstance(out, HalfField):
        return to_half(result, out)
    out[...] = result
    return out


def _whole(field: Array | HalfField) -> Array:
    return from_half(field) if isinstance(field, HalfField) else field


wilson_update = partial(updated_by, wilson_dslash)
