"""Whole arrays at a time; fields in few bits by the numbers that they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cg_update import CGCoefficients, quotient
from stages.lqcd.kernels.reference.block_blas import norms2
from stages.lqcd.kernels.reference.short_numbers import put, whole
from stages.lqcd.kernels.short_numbers import Numbers


def cg_advance(x: NDArray, p: Numbers, r: Numbers, coefficients: CGCoefficients) -> None:
    direction, residual = whole(p), whole(r)
    alpha, beta = (values.astype(x.real.dtype) for values in (coefficients.alpha, coefficients.beta))
    with np.errstate(invalid="ignore"):  # where a coefficient is zero, p may hold anything
        x[...] = np.where(alpha == 0, x, x + alpha * direction)
        advanced = np.where(beta == 0, residual, residual + beta * direction)
    put(p, advanced, coefficients.r2 > coefficients.target2)


def cg_residual(r: Numbers, ap: Numbers, coefficients: CGCoefficients) -> None:
    c, residual = coefficients, whole(r)
    moves = (c.r2 > c.target2) & (c.pap > 0)
    c.alpha[...] = quotient(c.gamma, c.pap, moves)
    alpha = c.alpha.astype(residual.real.dtype)
    with np.errstate(invalid="ignore"):  # where alpha is zero, ap may hold anything
        residual = np.where(alpha == 0, residual, residual - alpha * whole(ap))
    put(r, residual, alpha != 0)
    r2 = norms2(residual)
    c.beta[...] = quotient(r2, c.r2, moves)
    c.r2[...] = c.gamma[...] = r2
