"""Matrices of operators that are given as functions of fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

COLUMNS = 16
"""Columns at a time: kernels are compiled for each number of right-hand sides."""


def matrix_of(
    apply: Callable[[Any], NDArray], shape: tuple[int, ...], dtype: DTypeLike = np.complex128
) -> NDArray:
    """The matrix of a function of fields ``[*shape, N]``."""
    size = int(np.prod(shape))
    unit = np.eye(size, dtype=dtype).reshape(*shape, size)
    blocks = (unit[..., first : first + COLUMNS] for first in range(0, size, COLUMNS))
    return np.concatenate([apply(np.ascontiguousarray(block)) for block in blocks], -1).reshape(-1, size)
