"""Projections of 3x3 matrices to SU(3) and to U(3)."""

from __future__ import annotations

from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import gauge
from stages.lqcd.kernels.operands import check_matrices
from stages.lqcd.kernels.unitarity import LARGEST_UNITARITY_ERROR, SMALLEST_DETERMINANT


def special_unitary(links: cupy.ndarray, out: cupy.ndarray) -> float:
    """Gram-Schmidt on the rows, the third is (row 1 x row 2)^*; returns the largest change of an element.

    links, out ``[matrix, 3, 3]`` complex128; out may be links. NaN where a row vanishes.
    """
    check_matrices(links, out)
    changes = cupy.empty(ceil(len(links) / 32))
    run(gauge.projection("special_unitary", len(links)), out, links, changes, np.uint32(len(links)))
    return float(cupy.sqrt(changes.max()))


def unitary(matrices: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    """Polar factors V (V^dag V)^(-1/2); returns where that fails, bool ``[matrix]``, and out = V there.

    matrices, out ``[matrix, 3, 3]`` complex128; out may be matrices.
    """
    check_matrices(matrices, out)
    singular = cupy.empty(len(matrices), bool)
    bounds = np.float64(SMALLEST_DETERMINANT), np.float64(LARGEST_UNITARITY_ERROR)
    kernel = gauge.projection("unitary", len(matrices))
    run(kernel, out, singular, matrices, *bounds, np.uint32(len(matrices)))
    return singular
