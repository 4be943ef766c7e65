"""The terms one after the other: on processors smoothers take powers of the operator instead."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.clover import PackedClover
from stages.lqcd.kernels.short_numbers import Spinors, put, whole
from stages.lqcd.kernels.wilson_dslash import PackedLinks, wilson_dslash


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
    (a, b, c), before, hop = factors, whole(own), np.empty(out.shape, packed.dtype)
    wilson_dslash(packed, whole(x), hop, clover=None if clover is None else ("hop", clover))
    result = (a * before + b * hop + (0 if source is None else c * whole(source))).astype(packed.dtype)
    put(out, result)
    return out
