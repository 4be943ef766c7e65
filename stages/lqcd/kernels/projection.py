"""Projections of 3x3 matrices to SU(3) and to U(3)."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array

SMALLEST_DETERMINANT = 1e-8
"""Of V^dag V, with V scaled to tr V^dag V = 3: below it the singular values decide."""

LARGEST_UNITARITY_ERROR = 1e-7
"""Of the analytic W before its last Newton step, which squares it; above it the singular values decide."""


def special_unitary(links: Array, out: Array) -> float:
    """Gram-Schmidt on the rows, the third is (row 1 x row 2)^*; returns the largest change of an element.

    links, out ``[matrix, 3, 3]`` complex128; out may be links. NaN where a row vanishes.
    """
    _check_matrices(links, out)
    return kernel("projection.special_unitary", type(links))(links, out)


def unitary(matrices: Array, out: Array) -> Array:
    """Polar factors V (V^dag V)^(-1/2); returns where that fails, bool ``[matrix]``, and out = V there.

    matrices, out ``[matrix, 3, 3]`` complex128; out may be matrices. Analytic by Cayley-Hamilton
    (arXiv:1004.0342, appendix C), polished by one Newton step.
    """
    _check_matrices(matrices, out)
    return kernel("projection.unitary", type(matrices))(matrices, out)


def by_singular_values(matrices: Array, chosen: Array) -> int:
    """V becomes A B^dag of its decomposition V = A S B^dag where `chosen` says so; returns how many.

    matrices ``[matrix, 3, 3]`` complex128, chosen bool ``[matrix]``.
    """
    _check_matrices(matrices, matrices)
    check_array("chosen", chosen, (len(matrices),), np.dtype(bool))
    return kernel("projection.by_singular_values", type(matrices))(matrices, chosen)


def without_phase(matrices: Array) -> None:
    """W becomes W det(W)^(-1/3), the cube root of the smallest phase, for W in U(3) ``[matrix, 3, 3]``."""
    _check_matrices(matrices, matrices)
    kernel("projection.without_phase", type(matrices))(matrices)


def _check_matrices(matrices: Array, out: Array) -> None:
    """Raise InputError unless both are complex128 ``[matrix, 3, 3]``."""
    for name, array in (("matrices", matrices), ("out", out)):
        check_array(name, array, (len(matrices), 3, 3), np.dtype(complex))
