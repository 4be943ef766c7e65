"""Matrices of operators that are given as functions of fields, random links, and errors of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.kernels.dispatch import kernel

COLUMNS = 3
"""Columns at a time: kernels are compiled for each number of right-hand sides."""

FIELDS = 16
"""Columns at a time of the kernels in NumPy."""


def matrix_of(
    apply: Callable[[Any], NDArray], shape: tuple[int, ...], dtype: DTypeLike = np.complex128
) -> NDArray:
    """The matrix of a function of fields ``[*shape, N]``."""
    size = int(np.prod(shape))
    unit = np.eye(size, dtype=dtype).reshape(*shape, size)
    compiled = kernel("block_blas.dots", np.ndarray).__module__ != "stages.lqcd.kernels.reference.block_blas"
    columns = COLUMNS if compiled else FIELDS
    blocks = (unit[..., first : first + columns] for first in range(0, size, columns))
    return np.concatenate([apply(np.ascontiguousarray(block)) for block in blocks], -1).reshape(-1, size)


def dagger(matrices: Any) -> Any:
    return matrices.conj().swapaxes(-1, -2)


def error(values: NDArray, exact: NDArray) -> Any:
    """|values - exact| / |exact| of all elements together."""
    return np.linalg.norm(values - exact) / np.linalg.norm(exact)


def near(values: NDArray, exact: NDArray, tolerance: float) -> bool:
    """Whether |values - exact| of all elements together is at most so many |exact|."""
    return bool(np.linalg.norm(values - exact) <= tolerance * np.linalg.norm(exact))


def close(values: NDArray, exact: NDArray, tolerance: float) -> bool:
    """Whether no element differs by more than so many times the largest one."""
    return bool(np.abs(values - exact).max() <= tolerance * np.abs(exact).max())


def relative_residuals(A: Any, x: NDArray, b: NDArray) -> NDArray:
    """|b - A x| / |b| of each right-hand side, the last axis; |A x| where b is zero."""
    missed, size = (np.linalg.norm(each.reshape(-1, b.shape[-1]), axis=0) for each in (b - A.apply(x), b))
    return missed / np.where(size > 0, size, 1)


def random_su3(rng: np.random.Generator, *shape: int, size: float) -> NDArray:
    """SU(3) matrices exp(i H) ``[*shape, 3, 3]``, H Hermitian and traceless with entries of about `size`."""
    matrix = size * (rng.normal(size=(*shape, 3, 3)) + 1j * rng.normal(size=(*shape, 3, 3)))
    hermitian = (matrix + matrix.conj().swapaxes(-1, -2)) / 2
    hermitian -= np.eye(3) * np.trace(hermitian, axis1=-2, axis2=-1)[..., None, None] / 3
    phases, vectors = np.linalg.eigh(hermitian)
    return (vectors * np.exp(1j * phases)[..., None, :]) @ vectors.conj().swapaxes(-1, -2)
