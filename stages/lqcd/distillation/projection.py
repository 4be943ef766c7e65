"""Sink projections of solutions on eigenvectors, of which neither need fit into the device as a whole."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.distillation.streaming import SlicedField, buffer_bytes, slices_per_tile, streamed
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import empty_field
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS
from stages.lqcd.kernels.transfer import Stored


def sink_projections(vectors: Stored, solutions: Stored, xp: ModuleType, device_bytes: int) -> Array:
    """c[t, spin, i, j] = sum_{x, colour} conj(v_i(x, colour)) psi_j(x, spin, colour) on all time slices.

    vectors: ``[time, parity, site of the slice, colour, eigenvector]``; solutions: ``[parity, site, 12,
    column]``, component 3 * spin + colour; complex64 or complex128. The result is complex128 ``[time, spin,
    eigenvector, column]`` in `xp`, `numpy` or `cupy`, whose kernels compute in the precision of the solutions
    (their accuracy: `stages.lqcd.kernels.cuda.slice_products`).

    What is no array of `xp`, such as a NumPy array beside `cupy` or an array of a store, is moved there by
    tiles of time slices while the tile before is multiplied. device_bytes: bound on what is allocated beside
    arrays of `xp`, which decides the tile (`planned_bytes`). Raises InputError.
    """
    fields = _fields(vectors, solutions)
    times, k, n = vectors.shape[0], vectors.shape[-1], solutions.shape[-1]
    tile = slices_per_tile(
        fields,
        times,
        device_bytes,
        lambda count: planned_bytes(vectors, solutions, xp, count),
        f"a projection of {n} columns on {k} eigenvectors",
    )
    result = empty_field((times, SPINS, k, n), np.complex128, xp)
    kernel = slice_products.sink_projection
    for part in streamed(fields, times, tile, xp):
        out = result[part.first : part.first + part.count]
        kernel(part.parts[0].astype(solutions.dtype, copy=False), part.parts[1], out, part.starts[1])
    return result


def planned_bytes(vectors: Stored, solutions: Stored, xp: ModuleType, tile: int) -> int:
    """Bytes that `sink_projections` allocates at most, with tiles of so many slices.

    The result, two buffers of what is moved, vectors in the solutions' precision, and what the kernel needs.
    """
    times, k, n = vectors.shape[0], vectors.shape[-1], solutions.shape[-1]
    shape, dtype = (tile, *vectors.shape[1:]), np.dtype(solutions.dtype)
    buffers = buffer_bytes(_fields(vectors, solutions), times, tile, xp)
    converted = 0 if vectors.dtype == dtype else int(np.prod(shape)) * dtype.itemsize
    workspace = slice_products.workspace_bytes(shape, SPINS * n, dtype, xp)
    return times * SPINS * k * n * np.dtype(complex).itemsize + buffers + converted + workspace


def _fields(vectors: Stored, solutions: Stored) -> tuple[SlicedField, SlicedField]:
    """Both operands, cut by slice. Raises InputError for shapes that do not belong together."""
    if len(vectors.shape) != 5 or vectors.shape[1] != 2 or vectors.shape[3] != COLOURS:
        raise InputError(f"eigenvectors must have shape (time, 2, site, 3, eigenvector), got {vectors.shape}")
    sites = vectors.shape[2]
    expected = (2, vectors.shape[0] * sites, COMPONENTS)
    if len(solutions.shape) != 4 or solutions.shape[:3] != expected or not solutions.shape[3]:
        raise InputError(
            f"solutions on the slices of eigenvectors {vectors.shape} have shape {expected} and their "
            f"number, at least 1, got {solutions.shape}"
        )
    return SlicedField(vectors, 0, 1), SlicedField(solutions, 1, sites)
