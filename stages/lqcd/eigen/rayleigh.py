"""Rayleigh quotients, true residuals and eigenvectors of A on columns of a basis, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import basis, block_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, field_like


def measure(
    A: LinearOperator, vectors: Array, spare: Array
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values lambda = v^H A v and residuals |A v - lambda v| of unit vectors ``[*, k]``.

    spare: a block, overwritten.
    """
    k = vectors.shape[-1]
    values, residuals = np.empty(k), np.empty(k)
    for columns, block, image in _images(A, vectors, spare):
        count = columns.stop - columns.start
        norms = as_numpy(block_blas.norms2(block))
        quotients = as_numpy(block_blas.dots(block, image)).real / np.where(norms > 0, norms, 1)
        block_blas.update(image, block, to_device_like(np.diag(-quotients).astype(complex), block))
        values[columns] = quotients[:count]
        residuals[columns] = np.sqrt(as_numpy(block_blas.norms2(image)))[:count]
    return values, residuals


def rotate_to_eigenvectors(A: LinearOperator, vectors: Array, spare: Array) -> NDArray[np.float64]:
    """Rotate orthonormal vectors ``[*, k]`` to the eigenvectors of A in their span; the values, ascending.

    Raises InputError for an operator that gives NaN.
    """
    k = vectors.shape[-1]
    projected = np.empty((k, k), complex)
    for columns, _, image in _images(A, vectors, spare):
        count = columns.stop - columns.start
        projected[:, columns] = as_numpy(basis.project(vectors, image))[:, :count]
    if not np.isfinite(projected).all():
        raise not_finite(A)
    values, rotation = np.linalg.eigh((projected + projected.conj().T) / 2)
    basis.rotate_in_place(vectors, to_device_like(rotation, vectors))
    return values


def not_finite(A: LinearOperator) -> InputError:
    """The error that says so."""
    return InputError(f"{type(A).__name__} gives numbers that are NaN or infinite: check the gauge links")


def _images(A: LinearOperator, vectors: Array, spare: Array) -> Iterator[tuple[slice, Array, Array]]:
    """Columns, the block that holds them (with zeros to its full width), and A times it."""
    width, k = spare.shape[-1], vectors.shape[-1]
    image = field_like(spare)
    for first in range(0, k, width):
        columns = slice(first, min(first + width, k))
        count = columns.stop - first
        assign(spare[..., :count], vectors[..., columns])
        assign(spare[..., count:], 0)
        A.apply(spare, image)
        yield columns, spare, image
