"""Updates of narrow fields go through complex64 on a processor: 16 bits a number gain it nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cpu import half_field, short_field
from stages.lqcd.kernels.half_field import HalfField
from stages.lqcd.kernels.short_field import ShortField

NarrowField: TypeAlias = ShortField | HalfField


def single(field: NDArray | NarrowField) -> NDArray:
    """The complex64 numbers that a field holds; an array as it is."""
    return half_field.from_half(field) if isinstance(field, HalfField) else short_field.single(field)


def put(field: NarrowField, values: NDArray, columns: NDArray[np.bool_]) -> None:
    """Put values into these columns of a field; the others keep their codes."""
    if isinstance(field, HalfField):
        coded = half_field.to_half(np.ascontiguousarray(values[:, :, columns]))
        field.codes[:, :, columns], field.scales[:, columns] = coded.codes, coded.scales
        return
    short = ShortField(np.empty_like(field.words), field.bits)
    short_field.to_short(values, field.bits, short)
    field.words[:, columns] = short.words[:, columns]


def advance_through_single(
    advance: Callable[..., None],
    x: NDArray,
    p: NDArray | NarrowField,
    r: NarrowField,
    coefficients: CGCoefficients,
) -> None:
    """`cg_advance` of complex64 fields applied to a narrow residual as a GPU does it."""
    direction = single(p)
    advance(x, direction, single(r), coefficients)
    if not isinstance(p, np.ndarray):
        put(p, direction, coefficients.r2 > coefficients.target2)


def residual_through_single(
    step: Callable[..., None], r: NarrowField, ap: NarrowField, coefficients: CGCoefficients
) -> None:
    """`cg_residual` of complex64 fields applied to narrow ones as a GPU does it."""
    residual = single(r)
    step(residual, single(ap), coefficients)
    put(r, residual, coefficients.alpha != 0)
