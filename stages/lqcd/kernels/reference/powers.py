"""Paired powers in plain NumPy; sums of twice double, and coordinates, in `longdouble`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.powers import CRAY, DOUBLED, WORKING, Gram, Path

Exact = NDArray[np.longdouble]


def add_earlier(powers: NDArray, i: int, factor: float) -> None:
    powers[i + 1] += powers.real.dtype.type(factor) * powers[i - 1]


def gram(powers: NDArray, precision: str, out: Gram) -> None:
    doubled = precision in (DOUBLED, CRAY)
    vectors = _vectors(powers).astype(
        np.longdouble if doubled else powers.real.dtype if precision == WORKING else float
    )
    total = vectors @ vectors.swapaxes(1, 2)
    out.high[...] = total
    out.low[...] = total - out.high if doubled else 0


def magnitudes(powers: NDArray) -> NDArray:
    vectors = abs(_vectors(powers))
    return (vectors @ vectors.swapaxes(1, 2)).astype(float)


def conjugate_gradients(
    gram: Gram, targets2: NDArray, restarted: NDArray, least: float, doubled: bool, path: Path
) -> None:
    matrices = gram.high.astype(np.longdouble) + gram.low
    for n, matrix in enumerate(matrices):
        allowed = _allowed(matrix, len(path.x) - 1, least)
        _one(matrix, targets2[n], bool(restarted[n]), allowed, path, n)


def _one(gram: Exact, target2: float, restarted: bool, allowed: int, path: Path, n: int) -> None:
    """The steps of right-hand side n."""
    steps = len(path.x) - 1
    x, r, p = (np.zeros(len(gram), np.longdouble) for _ in range(3))
    p[0] = r[steps + 1] = 1
    rho, taken = r @ gram @ r, 0
    path.report[steps + 1 :, n] = 1
    for step in range(steps + 1):
        path.x[step, n], path.r[step, n], path.p[step, n], path.report[step, n] = x, r, p, rho
        if taken < step or step >= allowed or not rho > target2:
            continue
        ap = path.change @ p
        curvature = p @ gram @ ap
        path.report[steps + 2 + step, n] = curvature
        if not curvature > 0:
            continue
        exactly = restarted and step == 0
        alpha = (p @ gram @ r if exactly else rho) / curvature
        x, r = x + alpha * p, r - alpha * ap
        after = r @ gram @ r
        p = r + (-(ap @ gram @ r) / curvature if exactly else after / rho) * p
        rho, taken = after, step + 1
    path.report[-2:, n] = taken, allowed


def _allowed(gram: Exact, steps: int, least: float) -> int:
    """Steps before the first pivot, of the p_i scaled to length one, that is below `least`."""
    rest = gram[: steps + 1, : steps + 1].copy()
    for k in range(steps + 1):
        if not rest[k, k] > least * gram[k, k]:
            return max(1, k - 1) if least and gram[k, k] > 0 else steps
        rest[k + 1 :, k + 1 :] -= np.outer(rest[k + 1 :, k], rest[k, k + 1 :]) / rest[k, k]
    return steps


def update(
    y: NDArray, powers: NDArray, last: NDArray, image: NDArray, path: Path, restarted: NDArray, step: int
) -> None:
    rhs, steps = powers.shape[-1] // 2, len(powers) - 1
    vectors = np.concatenate([powers[..., :rhs], powers[:steps, ..., rhs:]])
    for n, taken in enumerate(path.taken.astype(int)):
        if now := min(step, taken):
            restarted[n] = 0
            before = path.p[now - 1, n]
            for field, coordinates in (
                (y, path.x[now, n]),
                (last, before),
                (image, path.change @ before),
                (powers[0, ..., :rhs], path.p[now, n]),
                (powers[0, ..., rhs:], path.r[now, n]),
            ):
                combined = np.tensordot(coordinates, vectors[..., n], 1)
                field[..., n] = combined + field[..., n] if field is y else combined


def _vectors(powers: NDArray) -> NDArray:
    """The vectors of each right-hand side as reals ``[N, K, reals]``."""
    rhs, count = powers.shape[-1] // 2, len(powers)
    both = powers.reshape(count, -1, 2, rhs).transpose(3, 2, 0, 1).reshape(rhs, 2 * count, -1)
    return np.ascontiguousarray(both[:, :-1]).view(powers.real.dtype)
