"""Projections on a GPU, one thread a matrix."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import on_own_rows, segments_of
from stages.lqcd.kernels.cuda.launch import matrix_launch
from stages.lqcd.kernels.projection import LARGEST_UNITARITY_ERROR, SMALLEST_DETERMINANT


def special_unitary(links: cupy.ndarray, out: cupy.ndarray) -> float:
    change = cupy.zeros(1)
    kernel = matrix_launch("projection.cu", "special_unitary", len(links), segments_of(out))
    run(kernel, out, links, change, np.uint32(len(links)))
    return float(np.sqrt(change.get()[0]))


def unitary(matrices: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    singular = cupy.empty(len(matrices), bool)
    bounds = np.float64(SMALLEST_DETERMINANT), np.float64(LARGEST_UNITARITY_ERROR)
    kernel = matrix_launch("projection.cu", "unitary", len(matrices), segments_of(out))
    run(kernel, out, singular, matrices, *bounds, np.uint32(len(matrices)))
    return singular


def by_singular_values(matrices: cupy.ndarray, chosen: cupy.ndarray) -> int:
    return sum(on_own_rows(_by_singular_values, matrices, chosen))


def _by_singular_values(matrices: cupy.ndarray, chosen: cupy.ndarray) -> int:
    places = cupy.flatnonzero(chosen)
    if len(places):
        left, _, right = cupy.linalg.svd(matrices[places])
        matrices[places] = left @ right
    return len(places)


def without_phase(matrices: cupy.ndarray) -> None:
    kernel = matrix_launch("projection.cu", "without_phase", len(matrices), segments_of(matrices))
    run(kernel, matrices, np.uint32(len(matrices)))
