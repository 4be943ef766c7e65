"""The directions of GCR and what it does with them: in the precision of the residual, or in 16 bits.

Both hold z_k and w_k of steps 1 and 2 of `stages.lqcd.solvers.gcr`, as many as there is room for.
"""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels import lane_blas
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, converted, field_like, zeros_like
from stages.lqcd.kernels.half_update import (
    HalfBasis,
    half_basis_combine,
    half_basis_dots,
    half_basis_update,
)
from stages.lqcd.kernels.short_numbers import from_half, to_half

HALF_ROUNDING = 2.0**-16
"""Rounding unit of fields in 16 bits, relative to the largest part of a site."""


class WholeDirections:
    """z and w ``[size, ..., N]`` of the precision of r."""

    def __init__(self, r: Array, size: int) -> None:
        self.z = field_like(r, (size, *r.shape))
        self.w = field_like(self.z)
        self.rounding = float(np.finfo(r.dtype).eps)

    def room(self, k: int, r: Array) -> tuple[Array, Array]:
        """Fields like r for z_k and A z_k."""
        return self.z[k], self.w[k]

    def enter(self, k: int, z: Array, image: Array) -> None:
        """Keep `image`, perhaps z itself, as z_k, and write into z what is kept."""
        if image is not z:
            assign(z, image)

    def products(self, k: int, w: Array) -> Array:
        """w_j^H w of those before w, and |w|^2: complex128 ``[k + 1, N]``."""
        return lane_blas.lane_dots(self.w[: k + 1], w)

    def before(self, products: Array, beta: Array, norms2: Array) -> Array:
        """|w|^2 as it was, from its products; norms2: after `beta` of others was added."""
        return products[-1].real

    def orthogonal(self, k: int, w: Array, beta: Array, r: Array) -> tuple[Array, Array]:
        """Keep w + sum_j beta_j w_j as w_k; returns |w_k|^2 and w_k^H r."""
        if k:
            lane_blas.lane_update(w, self.w[:k], beta)
        newest = self.w[k : k + 1]
        return lane_blas.lane_dots(newest, w)[0].real, lane_blas.lane_dots(newest, r)[0]

    def shorten(self, k: int, r: Array, alpha: Array) -> Array:
        """``r -= alpha w_k``; returns |r|^2."""
        lane_blas.lane_update(r, self.w[k : k + 1], -alpha[None])
        return lane_blas.lane_dots(r[None], r)[0].real

    def solution(self, r: Array, coefficients: Array) -> Array:
        """sum_j coefficients[j] z_j, a new field like r."""
        y = zeros_like(r)
        if len(coefficients):
            lane_blas.lane_update(y, self.z[: len(coefficients)], coefficients)
        return y


class HalfDirections:
    """z and w in 16 bits (`stages.lqcd.kernels.half_update`), of spinors in single precision on one parity.

    A is applied to z as it is kept, and r is shortened by w as it is kept: rounding of z changes nothing but
    the direction, and that of w what r misses of b - A y. Sums are those of w before it is rounded.
    """

    def __init__(self, r: Array, size: int) -> None:
        together = HalfBasis.like(r, 2 * size)  # whose memory has room for a solution afterwards
        self.z, self.w = together.fields(0, size), together.fields(size, 2 * size)
        self.rounding = HALF_ROUNDING

    def room(self, k: int, r: Array) -> tuple[Array, Array]:
        """New fields like r, whose memory is free again after the step: at replacements others need it."""
        return field_like(r), field_like(r)

    def enter(self, k: int, z: Array, image: Array) -> None:
        """Keep `image`, perhaps z itself, as z_k, and write into z what is kept."""
        to_half(converted(image, z.dtype), self.z[k])
        from_half(self.z[k], z)

    def products(self, k: int, w: Array) -> Array:
        """w_j^H w of those before w, complex128 ``[k, N]``."""
        return half_basis_dots(self.w.fields(0, k), w)

    def before(self, products: Array, beta: Array, norms2: Array) -> Array:
        """|w|^2 as it was: its parts along the others are orthogonal."""
        return norms2 - (beta * products.conj()).real.sum(axis=0)

    def orthogonal(self, k: int, w: Array, beta: Array, r: Array) -> tuple[Array, Array]:
        """Keep w + sum_j beta_j w_j as w_k; returns |w_k|^2 and w_k^H r."""
        overlap, norms2 = half_basis_combine(w, self.w.fields(0, k), beta, self.w[k], r)
        return norms2.real, overlap

    def shorten(self, k: int, r: Array, alpha: Array) -> Array:
        """``r -= alpha w_k``; returns |r|^2."""
        return half_basis_update(r, self.w.fields(k, k + 1), -alpha[None])

    def solution(self, r: Array, coefficients: Array) -> Array:
        """sum_j coefficients[j] z_j, a new field like r."""
        y = zeros_like(r)
        half_basis_update(y, self.z.fields(0, len(coefficients)), coefficients)
        return y
