"""Whole arrays at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.lqcd.kernels.cg_update import CGCoefficients, quotient
from stages.lqcd.kernels.cpu.narrow_fields import (
    NarrowField,
    advance_through_single,
    residual_through_single,
)
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.reference.block_blas import norms2


def cg_advance(x: Array, p: Any, r: Any, coefficients: CGCoefficients) -> None:
    if isinstance(r, NarrowField):
        advance_through_single(cg_advance, x, p, r, coefficients)
        return
    xp, open_columns = array_module(x), coefficients.r2 > coefficients.target2
    alpha, beta = (values.astype(x.real.dtype) for values in (coefficients.alpha, coefficients.beta))
    with np.errstate(invalid="ignore"):  # where a coefficient is zero, p may hold anything
        x[...] = xp.where(alpha == 0, x, x + alpha * p)
        p[...] = xp.where(open_columns, xp.where(beta == 0, r, r + beta * p), p)


def cg_residual(r: Any, ap: Any, coefficients: CGCoefficients) -> None:
    if isinstance(r, NarrowField):
        residual_through_single(cg_residual, r, ap, coefficients)
        return
    xp, c = array_module(r), coefficients
    moves = (c.r2 > c.target2) & (c.pap > 0)
    c.alpha[...] = quotient(c.gamma, c.pap, moves)
    alpha = c.alpha.astype(r.real.dtype)
    with np.errstate(invalid="ignore"):  # where alpha is zero, ap may hold anything
        r[...] = xp.where(alpha == 0, r, r - alpha * ap)
    r2 = norms2(r)
    c.beta[...] = quotient(r2, c.r2, moves)
    c.r2[...] = c.gamma[...] = r2
