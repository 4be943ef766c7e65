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
    factors: tuple[complex, complex, complex],
    clover: PackedClover | None,
) -> Spinors:
    (a, b, c), before, hop = factors, whole(own), np.empty_like(whole(own))
    wilson_dslash(packed, whole(x), hop, clover=None if clover is None else ("hop", clover))
    result = a * before + b * hop + (0 if source is None else c * whole(source))
    put(out, result.astype(packed.dtype))
    return out
