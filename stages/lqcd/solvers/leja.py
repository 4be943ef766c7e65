"""The order of Leja: products of factors z - z_j, taken in it, neither grow nor shrink much on the way.

L. Reichel, BIT 30 (1990) 332.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", np.float64, np.complex128)

TINY = 1e-300
"""Stands for a distance of zero."""


def leja_order(points: NDArray[Number], count: int | None = None) -> NDArray[Number]:
    """So many of some points ``[n]``, or all, each the farthest, by product of distances, from those before.

    The first is the one of largest modulus. Where there are fewer, all begin again.
    """
    points = np.asarray(points)
    distances = np.log(np.abs(points) + TINY)
    order: list[int] = []
    left = np.ones(len(points), bool)
    for step in range(len(points) if count is None else count):
        left |= not left.any()
        order.append(int(np.argmax(np.where(left, distances, -np.inf))))
        left[order[-1]] = False
        between = np.log(np.maximum(np.abs(points - points[order[-1]]), TINY))
        distances = distances + between if step else between
    return points[order]
