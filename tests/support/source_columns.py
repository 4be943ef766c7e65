"""The coefficients of distillation's columns on all slices, and where a column begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.distillation.columns import Columns
from stages.lqcd.kernels.gamma import SPINS


def coefficients(columns: Columns, block: range) -> NDArray[np.complex128]:
    """Coefficients rho of a block's columns, complex128 ``[time, spin, eigenvector, column]``."""
    rho = np.zeros((columns.time_extent, SPINS, columns.eigenvectors, len(block)), complex)
    for time in columns.times(block):
        rho[time] = columns.on_slice(time, block)
    return rho


def beginning(columns: Columns, number: int) -> tuple[int, int, int]:
    """Time, spin and eigenvector of the first coefficient of a column that is not zero.

    They are the numbers of the subsets that a noise vector is cut to.
    """
    time, spin, eigenvector = np.argwhere(coefficients(columns, range(number, number + 1))[..., 0])[
        0
    ].tolist()
    return time, spin, eigenvector
