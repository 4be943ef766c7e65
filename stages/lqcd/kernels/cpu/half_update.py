"""Through complex64: 16 bits gain a processor little."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.half_field import from_half, to_half
from stages.lqcd.kernels.cpu.lane_blas import lane_dots, lane_update
from stages.lqcd.kernels.half_field import HalfField


def half_dots(xs: Sequence[HalfField], y: HalfField) -> NDArray:
    return lane_dots(np.stack([from_half(x) for x in xs]), from_half(y))


def half_update(y: HalfField, xs: Sequence[HalfField], a: NDArray, scale: NDArray | None = None) -> None:
    values = from_half(y)
    lane_update(values, np.stack([from_half(x) for x in xs]), a, scale)
    _put(y, values, (a != 0).any(axis=0) | (False if scale is None else scale != 1))


def half_step(x: NDArray, p: HalfField, r: HalfField, t: HalfField, a: NDArray) -> NDArray:
    values = from_half(r)
    lane_update(x, np.stack([from_half(p), values]), a)
    lane_update(values, from_half(t)[None], -a[1:])
    norms2 = lane_dots(values[None], values)[0].real
    _put(r, values, a[1] != 0)
    return norms2


def _put(field: HalfField, values: NDArray, columns: NDArray[np.bool_]) -> None:
    """Put values into these columns of a field; the others keep their codes."""
    coded = to_half(values)
    field.codes[:, :, columns] = coded.codes[:, :, columns]
    field.scales[:, columns] = coded.scales[:, columns]
