"""A field of the basis at a time."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module


def lane_dots(xs: Array, y: Array) -> Array:
    rows = y.reshape(-1, y.shape[-1]).astype(np.complex128)
    fields = xs.reshape(len(xs), *rows.shape)
    return array_module(y).stack([(field.conj() * rows).sum(axis=0) for field in fields])


def lane_update(y: Array, xs: Array, a: Array, scale: Array | None = None) -> None:
    if scale is not None:
        y *= scale.astype(y.dtype)
    for field, coefficients in zip(xs, a.astype(y.dtype), strict=True):
        y += coefficients * field


def lane_polynomial(y: Array, v: Array, c: Array) -> None:
    lane_update(y, v[:-1], c)
    lane_update(v[0], v[1:], -c)
