"""Expressions of NumPy, one direction after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def add_backward(diagonal: NDArray, inside: Sequence[NDArray], links: NDArray, behind: NDArray) -> None:
    n = diagonal.shape[-1]
    signs = np.repeat([1.0, -1.0], n // 2)[:, None].astype(diagonal.real.dtype)

    def mirrored(matrices: NDArray) -> NDArray:
        return signs * matrices.conj().swapaxes(-1, -2) * signs.T

    for mu in range(4):
        diagonal += inside[mu] + mirrored(inside[mu])
        links[:, 2 * mu + 1] = mirrored(links[behind[:, mu], 2 * mu])
