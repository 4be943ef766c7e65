"""Gram matrices by the library's products; conjugate gradients on coordinates in the longest float of NumPy.

That has 64 bits on x86. Coordinates are so few that they are always summed so.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.cpu.lane_blas import lane_update
from stages.lqcd.kernels.powers import Coordinates

LONG = np.longdouble
RESOLVED = 64 * float(np.finfo(LONG).eps)
"""Squared sine of an angle below which Gram matrices do not tell vectors apart."""
REALS = 1 << 14
"""Real numbers of a field that are summed by one matrix product."""
PARTS, BITS = 4, 19
"""Parts of a number and bits of each: so many products of two parts are summed in double without error."""


def add_earlier(powers: NDArray, i: int, factor: float) -> None:
    lane_update(powers[i + 1], powers[i - 1 : i], np.full((1, powers.shape[-1]), factor, complex))


def gram(powers: NDArray, out: Coordinates) -> None:
    sums: NDArray[np.floating] = np.zeros_like(out.high, LONG if out.doubled else np.float64)
    for rows in _real_slabs(powers, np.dtype(np.float64)):
        if not out.doubled:
            sums += rows @ rows.swapaxes(1, 2)
            continue
        parts = _parts(rows)
        for total in range(PARTS - 1, -1, -1):
            for j in range(total + 1):
                sums += parts[j] @ parts[total - j].swapaxes(1, 2)
    out.high[...] = sums
    out.low[...] = sums - out.high


def magnitudes(powers: NDArray) -> NDArray:
    size = 2 * len(powers) - 1
    sums = np.zeros((powers.shape[-1] // 2, size, size))
    for rows in _real_slabs(powers, powers.real.dtype):
        absolute = np.abs(rows)
        sums += absolute @ absolute.swapaxes(1, 2)
    return sums


@np.errstate(over="ignore", invalid="ignore")
def conjugate_gradients(coordinates: Coordinates, least: float) -> None:
    of, steps = coordinates, len(coordinates.x) - 1
    G, change = of.high.astype(LONG) + of.low, of.change.astype(LONG)
    x, r, p = np.zeros((3, *of.x.shape[1:]), LONG)
    r[:, steps + 1] = p[:, 0] = 1
    rho, norms2, curvatures = _product(G, r, r), of.report[: steps + 1], of.report[steps + 1 : 2 * steps + 2]
    allowed = np.array([_allowed(each[: steps + 1, : steps + 1], least) for each in G])
    taken, going = np.zeros(len(G), int), np.ones(len(G), bool)
    curvatures[...] = 1
    for step in range(steps + 1):
        norms2[step], of.x[step], of.r[step], of.p[step] = rho, x, r, p
        going = going & (step < allowed) & (rho > of.targets2)
        if not going.any():
            continue
        ap = p @ change.T
        curvature = _product(G, p, ap)
        curvatures[step + 1] = np.where(going, curvature, 1)
        going = going & (curvature > 0)
        exactly = (of.restarted != 0) & (step == 0)
        alpha = quotient(np.where(exactly, _product(G, p, r), rho), curvature, going)
        x = x + alpha[:, None] * p
        r = r - alpha[:, None] * ap
        after = _product(G, r, r)
        conjugate = quotient(-_product(G, ap, r), curvature, going)
        beta = np.where(exactly, conjugate, quotient(after, rho, going))
        p = np.where(going[:, None], r + beta[:, None] * p, p)
        rho, taken = np.where(going, after, rho), taken + going
    of.report[-2:] = taken, allowed


def _product(G: NDArray, v: NDArray, w: NDArray) -> NDArray:
    """v^T G w of each right-hand side; v, w ``[N, K]``."""
    return (v * (G @ w[..., None])[..., 0]).sum(axis=-1)


def _allowed(G: NDArray, least: float) -> int:
    """Steps whose basis, with this Gram matrix, is conditioned well enough; all where `least` is zero."""
    rest, steps = G.copy(), len(G) - 1
    for k in range(steps + 1 if least else 0):
        if not rest[k, k] > max(least, RESOLVED) * G[k, k]:
            return max(1, k - 1) if G[k, k] > 0 else steps
        rest[k + 1 :, k + 1 :] -= np.outer(rest[k + 1 :, k], rest[k, k + 1 :]) / rest[k, k]
    return steps


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
