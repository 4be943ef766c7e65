"""Vector updates of batched conjugate gradients, one coefficient per right-hand side: ``[site, 3, N]``."""

from __future__ import annotations

import numpy as np

from stages.kernels.dispatch import Array, array_module
from stages.kernels.operands import check_array, check_blocks, check_per_rhs
from stages.kernels.reference.block_blas import norms2


def cg_step(x: Array, r: Array, p: Array, ap: Array, alpha: Array) -> Array:
    """x += alpha p, r -= alpha ap in place; returns the new |r|^2, float64 ``[N]``.

    alpha is float64 ``[N]``. Where it is zero, x and r keep their bits whatever p and ap hold.
    """
    check_blocks(x=x)
    check_per_rhs("alpha", alpha, x)
    for name, array in (("r", r), ("p", p), ("ap", ap)):
        check_array(name, array, x.shape, x.dtype)
    xp, alpha = array_module(x), _coefficients(alpha, x)
    with np.errstate(invalid="ignore"):  # where alpha is zero, p and ap may hold anything
        x[...] = xp.where(alpha == 0, x, x + alpha * p)
        r[...] = xp.where(alpha == 0, r, r - alpha * ap)
    return norms2(r)


def cg_direction(p: Array, r: Array, beta: Array) -> None:
    """p = r + beta p in place, beta float64 ``[N]``; where beta is zero p becomes r whatever p held."""
    check_blocks(p=p)
    check_per_rhs("beta", beta, p)
    check_array("r", r, p.shape, p.dtype)
    xp, beta = array_module(p), _coefficients(beta, p)
    with np.errstate(invalid="ignore"):
        p[...] = xp.where(beta == 0, r, r + beta * p)


def _coefficients(values: Array, field: Array) -> Array:
    return array_module(field).asarray(values).astype(field.real.dtype)
