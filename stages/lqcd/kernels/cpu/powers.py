"""Conjugate gradients on coordinates in double-double, a right-hand side after another in a thread.

A number is a pair (high, low) with |low| <= ulp(high) / 2; sums and products as T. J. Dekker, Numer. Math. 18
(1971) 224.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import njit, prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.expressions import gram as gram
from stages.lqcd.kernels.expressions import magnitudes as magnitudes

inlined = njit(error_model="numpy")

SPLITTER = 134217729.0
"""2^27 + 1."""


def conjugate_gradients(
    gram: tuple[NDArray, NDArray],
    change: NDArray,
    steps: int,
    first: int,
    targets2: NDArray,
    restarted: bool,
) -> tuple[NDArray, ...]:
    count, size = len(targets2), len(change)
    x, r, p = (np.zeros((steps + 1, count, size)) for _ in range(3))
    norms2, curvatures = (np.zeros((steps + 1, count)) for _ in range(2))
    p[0, :, 0] = r[0, :, first] = 1
    numbers = np.array([steps, int(restarted)], np.int64)
    given = (*gram, change, targets2.astype(float))
    high, low, change, targets2 = (np.ascontiguousarray(array) for array in given)
    results = x, r, p, norms2, curvatures
    _conjugate_gradients()(high, low, change, numbers, targets2, *results)
    return results


@inlined
def _add(a, b):
    s = a[0] + b[0]
    t = s - a[0]
    e = (a[0] - (s - t)) + (b[0] - t) + a[1] + b[1]
    h = s + e
    return h, e - (h - s)


@inlined
def _times(a, b):
    p = a[0] * b[0]
    c = SPLITTER * a[0]
    ah = c - (c - a[0])
    al = a[0] - ah
    c = SPLITTER * b[0]
    bh = c - (c - b[0])
    bl = b[0] - bh
    e = ((ah * bh - p) + ah * bl + al * bh) + al * bl + a[0] * b[1] + a[1] * b[0]
    h = p + e
    return h, e - (h - p)


@inlined
def _minus(a):
    return -a[0], -a[1]


@inlined
def _over(a, b):
    q = a[0] / b[0]
    rest = _add(a, _minus(_times((q, 0.0), b)))
    r = rest[0] / b[0]
    h = q + r
    return h, r - (h - q)


@inlined
def _product(high, low, n, v, w):
    """v^T G w of right-hand side n; v, w ``[K, 2]``."""
    size = len(v)
    total = (0.0, 0.0)
    for j in range(size):
        if v[j, 0] != 0:
            row = (0.0, 0.0)
            for k in range(size):
                if w[k, 0] != 0:
                    row = _add(row, _times((high[n, j, k], low[n, j, k]), (w[k, 0], w[k, 1])))
            total = _add(total, _times((v[j, 0], v[j, 1]), row))
    return total


@cache
def _conjugate_gradients() -> Callable[..., None]:
    def iterate(low_item, high_item, high, low, change, numbers, targets2, xs, rs, ps, norms2, curvatures):
        steps, restarted, size = numbers[0], numbers[1] != 0, len(change)
        for n in prange(low_item, high_item):
            x, r, p, ap = (
                np.zeros((size, 2)),
                np.zeros((size, 2)),
                np.zeros((size, 2)),
                np.zeros((size, 2)),
            )
            for k in range(size):
                r[k, 0], p[k, 0] = rs[0, n, k], ps[0, n, k]
            rho = _product(high, low, n, r, r)
            norms2[0, n] = rho[0]
            for step in range(steps):
                if rho[0] > targets2[n]:
                    for j in range(size):
                        total = (0.0, 0.0)
                        for k in range(size):
                            if change[j, k] != 0 and p[k, 0] != 0:
                                total = _add(total, _times((change[j, k], 0.0), (p[k, 0], p[k, 1])))
                        ap[j, 0], ap[j, 1] = total
                    curvature = _product(high, low, n, p, ap)
                    curvatures[step + 1, n] = curvature[0]
                    along = rho
                    exactly = restarted and step == 0
                    if exactly:
                        along = _product(high, low, n, p, r)
                    alpha = _over(along, curvature)
                    for k in range(size):
                        x[k, 0], x[k, 1] = _add((x[k, 0], x[k, 1]), _times(alpha, (p[k, 0], p[k, 1])))
                        change_of_r = _times(_minus(alpha), (ap[k, 0], ap[k, 1]))
                        r[k, 0], r[k, 1] = _add((r[k, 0], r[k, 1]), change_of_r)
                    after = _product(high, low, n, r, r)
                    if exactly:
                        beta = _minus(_over(_product(high, low, n, ap, r), curvature))
                    else:
                        beta = _over(after, rho)
                    for k in range(size):
                        p[k, 0], p[k, 1] = _add((r[k, 0], r[k, 1]), _times(beta, (p[k, 0], p[k, 1])))
                    rho = after
                else:
                    curvatures[step + 1, n] = 1.0
                norms2[step + 1, n] = rho[0]
                for k in range(size):
                    xs[step + 1, n, k], rs[step + 1, n, k], ps[step + 1, n, k] = x[k, 0], r[k, 0], p[k, 0]

    given, result = array_type("f8", 3), array_type("f8", 3, writable=True)
    matrix, vector = array_type("f8", 2), array_type("f8", 1)
    filled = array_type("f8", 2, writable=True)
    signature = types.void(
        given, given, matrix, array_type("i8", 1), vector, result, result, result, filled, filled
    )
    return compiled(iterate, "conjugate_gradients_on_coordinates", signature, lambda *a: a[-1].shape[1])
