"""Products with bases, one system after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu import basis


def project(V: NDArray, x: NDArray) -> NDArray[np.complex128]:
    return np.stack([basis.project(one, block) for one, block in zip(V, x, strict=True)])


def add_combination(out: NDArray, V: NDArray, C: NDArray) -> None:
    for block, one, coefficients in zip(out, V, C, strict=True):
        basis.add_combination(block, one, coefficients)


def rotate_in_place(V: NDArray, Q: NDArray) -> None:
    for one, rotation in zip(V, Q, strict=True):
        basis.rotate_in_place(one, rotation)
