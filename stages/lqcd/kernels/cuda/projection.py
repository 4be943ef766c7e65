"""Projections on a GPU, one thread a matrix."""

from __future__ import annotations

from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import matrix_launch
from stages.lqcd.kernels.projection import LARGEST_UNITARITY_ERROR, SMALLEST_DETERMINANT


def special_unitary(links: cupy.ndarray, out: cupy.ndarray) -> float:
    changes = cupy.empty(ceil(len(links) / 32))
    run(
        matrix_launch("projection.cu", "special_unitary", len(links), shared=False),
        out,
        links,
        changes,
        np.uint32(len(links)),
    )
    return float(cupy.sqrt(changes.max()))


def unitary(matrices: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    singular = cupy.empty(len(matrices), bool)
    bounds = np.float64(SMALLEST_DETERMINANT), np.float64(LARGEST_UNITARITY_ERROR)
    kernel = matrix_launch("projection.cu", "unitary", len(matrices))
    run(kernel, out, singular, matrices, *bounds, np.uint32(len(matrices)))
    return singular


def by_singular_values(matrices: cupy.ndarray, chosen: cupy.ndarray) -> int:
    places = cupy.flatnonzero(chosen)
    if len(places):
        left, _, right = cupy.linalg.svd(matrices[places])
        matrices[places] = left @ right
    return len(places)


def without_phase(matrices: cupy.ndarray) -> None:
    kernel = matrix_launch("projection.cu", "without_phase", len(matrices))
    run(kernel, matrices, np.uint32(len(matrices)))
