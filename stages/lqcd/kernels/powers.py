"""Gram matrices of a basis of Krylov vectors, and conjugate gradients on coordinates in that basis.

A basis is an array ``[K, ..., N]``, C-contiguous, of K fields; right-hand sides never mix. Coordinates in it
are real, because the coefficients of conjugate gradients are: what is needed of x^H y is its real part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.errors import InputError
from stages.lqcd.kernels.dispatch import Array, as_numpy, kernel
from stages.lqcd.kernels.operands import check_blocks

WORKING, DOUBLE, DOUBLED = "working", "double", "double-double"
"""Precision of sums: that of the fields, double, or twice double by error-free splitting."""

Numbers = NDArray[np.float64]


class Gram(NamedTuple):
    """Real parts of x_j^H x_k of each right-hand side, the sum of two float64 ``[N, K, K]`` on the host."""

    high: Numbers
    low: Numbers


class Path(NamedTuple):
    """Conjugate gradients on coordinates: of x, r and p before each step, float64 ``[steps + 1, N, K]``.

    norms2: |r|^2; curvatures: p^H A p of the step that leads there; ``[steps + 1, N]``.
    """

    x: Numbers
    r: Numbers
    p: Numbers
    norms2: Numbers
    curvatures: Numbers


def gram(basis: Array, precision: str) -> Gram:
    """Re x_j^H x_k for all pairs of a basis, in one pass; `precision` is one of those above.

    In double-double each slab of the fields is split into four parts of 19 bits, whose products a library
    sums in double without error, as K. Ozaki, T. Ogita, S. Oishi and S. M. Rump, Numer. Algorithms 59 (2012)
    95, split matrices. Raises InputError.
    """
    check_blocks(basis=basis)
    if basis.ndim < 3 or not len(basis):
        raise InputError(f"a basis is an array (fields, ..., right-hand sides), got shape {basis.shape}")
    if precision not in (WORKING, DOUBLE, DOUBLED):
        raise InputError(f"precision must be {WORKING}, {DOUBLE} or {DOUBLED}, got {precision!r}")
    high, low = kernel("powers.gram", type(basis))(basis, precision)
    return Gram(as_numpy(high), as_numpy(low))


def magnitudes(basis: Array) -> Numbers:
    """Sums of |x_j| |x_k| over components, float64 ``[N, K, K]`` on the host, in working precision."""
    check_blocks(basis=basis)
    return as_numpy(kernel("powers.magnitudes", type(basis))(basis))


def conjugate_gradients(
    gram: Gram, change: Numbers, steps: int, first: int, targets2: Numbers, restarted: bool
) -> Path:
    """So many steps of conjugate gradients on coordinates, from x = 0, p = e_0 and r = e_first.

    change: ``[K, K]`` with A x_k = sum_j x_j change[j, k] for those k that occur. targets2 ``[N]``: |r|^2 at
    which a right-hand side stays as it is. restarted: p^H r is not |r|^2, as after a replacement of r; the
    coefficients of the first step are then those that minimise along p and make directions conjugate.
    All in double-double, from a Gram matrix that may be less.
    """
    start = kernel("powers.conjugate_gradients", type(gram.high))
    return Path(*start(gram, change, steps, first, targets2, restarted))
