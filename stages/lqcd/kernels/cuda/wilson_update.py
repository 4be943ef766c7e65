"""The kernel of `wilson_update.cu` in the shapes of the Wilson dslash."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.clover import PackedClover
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import Launch, check_rhs, narrowable
from stages.lqcd.kernels.cuda.short_numbers import codes_and_scales
from stages.lqcd.kernels.cuda.wilson_dslash import (
    FULL,
    HOP_CLOVER,
    NO_CLOVER,
    PackedLinks,
    SU3Links18,
    check_index,
    gathering_launch,
)
from stages.lqcd.kernels.short_numbers import HalfField
from stages.lqcd.lattice.geometry import Lattice

_NULL = np.uintp(0)

KINDS = ("Whole", "Half")


def wilson_update(
    packed: PackedLinks,
    x: cupy.ndarray | HalfField,
    out: cupy.ndarray | HalfField,
    *,
    own: cupy.ndarray | HalfField,
    source: cupy.ndarray | HalfField | None,
    factors: tuple[complex, complex, complex],
    clover: PackedClover | None,
) -> cupy.ndarray | HalfField:
    kinds = tuple(KINDS[isinstance(field, HalfField)] for field in (x, own, out))
    place = HOP_CLOVER + 4 * clover.kind if clover else NO_CLOVER
    real = packed.links.real.dtype.type
    run(
        wilson_update_launch(packed.lattice, packed.dtype, x.shape[2], place, packed.form, *kinds),
        *packed.arguments,
        *codes_and_scales(x),
        clover.matrices if clover else _NULL,
        *codes_and_scales(own),
        *codes_and_scales(source),
        *codes_and_scales(out),
        *(real(part) for factor in factors for part in (complex(factor).real, complex(factor).imag)),
        np.int32(packed.parity),
    )
    return out


@narrowable
def wilson_update_launch(
    lattice: Lattice,
    dtype: np.dtype,
    n: int,
    clover: int = NO_CLOVER,
    form: SU3Links18 = FULL,
    x: str = "Whole",
    own: str = "Whole",
    out: str = "Whole",
) -> Launch:
    """x, own, out: "Whole" or "Half", the kinds of these fields."""
    check_rhs(n)
    check_index(lattice, n)
    return gathering_launch("wilson_update", lattice, dtype, n, clover, form, (x, own, out), (clover,))
