"""Gram matrices by the library's products; conjugate gradients on coordinates in double-double, in threads.

A number of twice double is a pair (high, low) with |low| <= ulp(high) / 2; sums and products as T. J. Dekker,
Numer. Math. 18 (1971) 224. Coordinates are so few that they are always summed so.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled, inlined
from stages.lqcd.kernels.cpu.lane_blas import lane_update
from stages.lqcd.kernels.powers import Coordinates

SPLITTER = 134217729.0
"""2^27 + 1."""
REALS = 1 << 14
"""Real numbers of a field that are summed by one matrix product."""
PARTS, BITS = 4, 19
"""Parts of a number and bits of each: so many products of two parts are summed in double without error."""


def add_earlier(powers: NDArray, i: int, factor: float) -> None:
    lane_update(powers[i + 1], powers[i - 1 : i], np.full((1, powers.shape[-1]), factor, complex))


def gram(powers: NDArray, out: Coordinates) -> None:
    high, low = (np.zeros_like(out.high) for _ in range(2))
    for rows in _real_slabs(powers, np.dtype(np.float64)):
        if not out.doubled:
            high += rows @ rows.swapaxes(1, 2)
            continue
        parts = _parts(rows)
        for total in range(PARTS - 1, -1, -1):
            for j in range(total + 1):
                product = parts[j] @ parts[total - j].swapaxes(1, 2)
                summed = high + product
                back = summed - high
                low += (high - (summed - back)) + (product - back)
                high = summed
    out.high[...] = high + low
    out.low[...] = low - (out.high - high)


def magnitudes(powers: NDArray) -> NDArray:
    size = 2 * len(powers) - 1
    sums = np.zeros((powers.shape[-1] // 2, size, size))
    for rows in _real_slabs(powers, powers.real.dtype):
        absolute = np.abs(rows)
        sums += absolute @ absolute.swapaxes(1, 2)
    return sums


def conjugate_gradients(coordinates: Coordinates, least: float) -> None:
    of = coordinates
    given = (of.high, of.low, of.change, of.targets2, of.restarted, np.array([least]))
    _conjugate_gradients()(*given, of.x, of.r, of.p, of.report)


def update(
    y: NDArray, powers: NDArray, last: NDArray, image: NDArray, coordinates: Coordinates, step: int
) -> None:
    now = np.minimum(step, coordinates.report[-2].astype(np.intp))
    moves, rhs = now > 0, np.arange(len(now))
    before = coordinates.p[np.maximum(now - 1, 0), rhs]
    p, r = (_combined(powers, each[now, rhs]) for each in (coordinates.p, coordinates.r))
    y += np.where(moves, _combined(powers, coordinates.x[now, rhs]), 0)
    for field, factors in ((last, before), (image, before @ coordinates.change.T)):
        field[...] = np.where(moves, _combined(powers, factors), field)
    for columns, field in ((rhs, p), (len(now) + rhs, r)):
        powers[0][..., columns] = np.where(moves, field, powers[0][..., columns])
    coordinates.restarted[moves] = 0


def _combined(powers: NDArray, coordinates: NDArray) -> NDArray:
    """The field ``[..., N]`` of coordinates ``[N, K]``."""
    rhs, count = len(coordinates), len(powers)
    factors = np.zeros((count, 2 * rhs), complex)
    factors[:, :rhs], factors[:-1, rhs:] = coordinates[:, :count].T, coordinates[:, count:].T
    halves = np.zeros_like(powers[0])
    lane_update(halves, powers, factors)
    return halves[..., :rhs] + halves[..., rhs:]


def _real_slabs(powers: NDArray, dtype: np.dtype) -> Iterator[NDArray]:
    """Slabs ``[N, K, reals]`` of paired powers, as reals of this type."""
    count, columns = len(powers), powers.shape[-1]
    reals = powers.view(powers.real.dtype).reshape(count, -1, 2, columns // 2, 2)
    rows = max(1, REALS // 2)
    for first in range(0, reals.shape[1], rows):
        slab = reals[:, first : first + rows].transpose(3, 2, 0, 1, 4)
        slab = slab.reshape(columns // 2, 2 * count, -1)[:, :-1]
        yield np.ascontiguousarray(slab, dtype)


def _parts(rows: NDArray) -> list[NDArray]:
    """Numbers whose sum they are, of `BITS` bits below the largest of a row each."""
    largest = np.abs(rows).max(axis=2, keepdims=True)
    unit = np.exp2(np.ceil(np.log2(np.where(largest > 0, largest, 1))))
    parts, rest = [], rows
    for number in range(PARTS - 1):
        shift = unit * (1.5 * 2.0 ** (52 - BITS * (number + 1)))
        parts.append((rest + shift) - shift)
        rest = rest - parts[-1]
    return [*parts, rest]


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


@inlined
def _allowed(high, low, n, steps, least):
    """Steps whose basis is conditioned well enough (`stages.lqcd.kernels.powers.conjugate_gradients`)."""
    if least == 0:
        return steps
    rest = np.empty((steps + 1, steps + 1, 2))
    for j in range(steps + 1):
        for k in range(steps + 1):
            rest[j, k, 0], rest[j, k, 1] = high[n, j, k], low[n, j, k]
    for k in range(steps + 1):
        pivot = (rest[k, k, 0], rest[k, k, 1])
        if not pivot[0] > least * high[n, k, k]:
            return max(1, k - 1) if high[n, k, k] > 0 else steps
        for row in range(k + 1, steps + 1):
            factor = _minus(_over((rest[row, k, 0], rest[row, k, 1]), pivot))
            for i in range(k + 1, steps + 1):
                product = _times(factor, (rest[k, i, 0], rest[k, i, 1]))
                rest[row, i, 0], rest[row, i, 1] = _add((rest[row, i, 0], rest[row, i, 1]), product)
    return steps


@inlined
def _combine(out, factor, x, y):
    """``out = factor x + y`` of vectors of pairs."""
    for k in range(len(out)):
        out[k, 0], out[k, 1] = _add((y[k, 0], y[k, 1]), _times(factor, (x[k, 0], x[k, 1])))


@inlined
def _operated(change, p, ap):
    """``ap = change p``, with a tridiagonal matrix."""
    size = len(p)
    for j in range(size):
        total = (0.0, 0.0)
        for k in range(max(0, j - 1), min(size, j + 2)):
            total = _add(total, _times((change[j, k], 0.0), (p[k, 0], p[k, 1])))
        ap[j, 0], ap[j, 1] = total


@cache
def _conjugate_gradients() -> Callable[..., None]:
    def iterate(low_item, high_item, high, low, change, targets2, restarted, least, xs, rs, ps, report):
        size, steps = len(change), len(xs) - 1
        for n in prange(low_item, high_item):
            vectors = np.zeros((4, size, 2))
            x, r, p, ap = vectors[0], vectors[1], vectors[2], vectors[3]
            r[steps + 1, 0] = p[0, 0] = 1
            rho = _product(high, low, n, r, r)
            allowed, taken, going = _allowed(high, low, n, steps, least[0]), 0, True
            report[steps + 1 :, n] = 1.0
            for step in range(steps + 1):
                report[step, n] = rho[0]
                for k in range(size):
                    xs[step, n, k], rs[step, n, k], ps[step, n, k] = x[k, 0], r[k, 0], p[k, 0]
                if step == steps:
                    break
                going = going and step < allowed and rho[0] > targets2[n]
                if not going:
                    continue
                _operated(change, p, ap)
                curvature = _product(high, low, n, p, ap)
                report[steps + 2 + step, n] = curvature[0]
                if not curvature[0] > 0:
                    going = False
                    continue
                exactly = step == 0 and restarted[n] != 0
                along = _product(high, low, n, p, r) if exactly else rho
                alpha = _over(along, curvature)
                _combine(x, alpha, p, x)
                _combine(r, _minus(alpha), ap, r)
                after = _product(high, low, n, r, r)
                if exactly:
                    beta = _minus(_over(_product(high, low, n, ap, r), curvature))
                else:
                    beta = _over(after, rho)
                _combine(p, beta, p, r)
                rho, taken = after, step + 1
            report[2 * steps + 2, n], report[2 * steps + 3, n] = taken, allowed

    given, result = array_type("f8", 3), array_type("f8", 3, writable=True)
    matrix, vector = array_type("f8", 2), array_type("f8", 1)
    filled = array_type("f8", 2, writable=True)
    signature = types.void(given, given, matrix, vector, vector, vector, result, result, result, filled)
    return compiled(iterate, "conjugate_gradients_on_coordinates", signature, lambda *a: a[-1].shape[1])
