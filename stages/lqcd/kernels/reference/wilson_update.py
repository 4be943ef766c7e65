"""The terms one after the other, of the numbers that fields in 16 bits hold."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.reference.clover import PackedClover
from stages.lqcd.kernels.reference.short_numbers import put, whole
from stages.lqcd.kernels.reference.wilson_dslash import PackedLinks, wilson_dslash
from stages.lqcd.kernels.short_numbers import Spinors


def wilson_update(
    packed: PackedLinks,
    x: Spinors,
    out: Spinors,
    *,
    own: Spinors,
    source: Spinors | None,
    a: complex,
    b: complex,
    c: complex,
    hop_clover: PackedClover | None,
) -> Spinors:
    before, hop = whole(own), np.empty_like(whole(own))
    wilson_dslash(packed, whole(x), hop, hop_clover=hop_clover)
    result = a * before + b * hop + (0 if source is None else c * whole(source))
    put(out, result.astype(packed.dtype))
    return out
