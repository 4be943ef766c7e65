"""A product with the Wilson operator and what an iteration adds to it, in one go."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.clover import PackedClover
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.kernels.short_numbers import HalfField, SpinorField, Spinors, check_half_field
from stages.lqcd.kernels.wilson_dslash import PackedLinks, check_terms

Factors: TypeAlias = tuple[complex, complex, complex]


def wilson_update(
    packed: PackedLinks,
    x: Spinors,
    out: SpinorField,
    *,
    own: Spinors,
    source: Spinors | None = None,
    factors: Factors = (1.0, 1.0, 0.0),
    clover: PackedClover | None = None,
) -> SpinorField:
    """``out = a own + b C D x + c source`` with factors (a, b, c); returns `out`.

    D and C as of `stages.lqcd.kernels.wilson_dslash.wilson_dslash`, C one where no `clover` is given. x
    ``[site, 12, N]`` lives on the opposite parity, the others on ``packed.parity``; all are of the links'
    dtype, or HalfFields with complex64 links, each of x and out for itself, own and source alike. `out` may
    be `own` or `source`, never `x`. Raises InputError.
    """
    shape = (packed.lattice.half_volume, COMPONENTS, x.shape[2])
    for name, field in (("x", x), ("own", own), ("source", source), ("out", out)):
        if isinstance(field, HalfField):
            check_half_field(name, field, shape)
        elif field is not None:
            check_array(name, field, shape, packed.dtype)
    halved = [isinstance(field, HalfField) for field in (x, own, source, out) if field is not None]
    if any(halved) and packed.dtype != np.complex64:
        raise InputError(f"a HalfField needs complex64 links, got {packed.dtype}")
    if source is not None and isinstance(source, HalfField) != isinstance(own, HalfField):
        raise InputError("own and source must both be HalfFields, or neither")
    if type(out) is type(x) and array_module(_numbers(x)).may_share_memory(_numbers(out), _numbers(x)):
        raise InputError("out of the update must not be its input x: give another array")
    check_terms(packed, None, 1, None if clover is None else ("hop", clover))
    start: Any = kernel("wilson_update.wilson_update", type(packed))
    return start(packed, x, out, own=own, source=source, factors=factors, clover=clover)


def _numbers(field: Spinors) -> Array:
    return field.codes if isinstance(field, HalfField) else field
