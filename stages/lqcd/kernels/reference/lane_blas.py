"""A field of the basis at a time, or whole arrays."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.lane_blas import NOISE


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


def lane_gram(xs: Array) -> Array:
    rows = xs.reshape(len(xs), -1, xs.shape[-1]).astype(complex)
    return array_module(xs).einsum("jrn,krn->jkn", rows.conj(), rows)


def lane_least_squares(gram: Array) -> Array:
    xp, size = array_module(gram), len(gram) - 1
    norms2 = xp.stack([gram[k + 1, k + 1].real for k in range(size)])
    scale = xp.where(norms2 > 0, 1 / xp.sqrt(xp.where(norms2 > 0, norms2, 1)), 0)
    factor = xp.zeros((size, size, gram.shape[2]), complex)
    c = xp.zeros((size, gram.shape[2]), complex)
    inverse = xp.zeros((size, gram.shape[2]))
    for j in range(size):
        pivot = (norms2[j] > 0) - (abs(factor[j, :j]) ** 2).sum(axis=0)
        usable = pivot > NOISE
        inverse[j] = xp.where(usable, 1 / xp.sqrt(xp.where(usable, pivot, 1)), 0)
        for i in range(j + 1, size):
            product = gram[i + 1, j + 1] * scale[i] * scale[j]
            factor[i, j] = (product - (factor[i, :j] * factor[j, :j].conj()).sum(axis=0)) * inverse[j]
        c[j] = (gram[j + 1, 0] * scale[j] - (factor[j, :j] * c[:j]).sum(axis=0)) * inverse[j]
    for j in reversed(range(size)):
        c[j] = (c[j] - (factor[j + 1 :, j].conj() * c[j + 1 :]).sum(axis=0)) * inverse[j]
    return c * scale
