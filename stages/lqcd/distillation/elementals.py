"""Elementals: matrix elements of e^{ipx} D between eigenvectors of one time slice (arXiv:0905.2160)."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.distillation.streaming import SlicedField, buffer_bytes, slices_per_tile, streamed
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.kernels.transfer import Stored, copy_to_host


def elementals(
    vectors: Stored,
    links: Array | None,
    insertions: Insertions,
    xp: ModuleType,
    device_bytes: int,
    first: int = 0,
) -> NDArray[np.complex128]:
    """v_i^dag e^{ipx} D v_j of all pairs, complex128 ``[time, momentum, displacement, i, j]`` on the host.

    vectors: ``[time, parity, site of the slice, colour, eigenvector]``, complex64 or complex128, the slices
    first, first + 1, ... of the lattice, in `xp` or anywhere (`streamed`); links: those of the displacements
    in `xp`, ``[mu, parity, site, 3, 3]``, or None where there are none. device_bytes: bound on what is
    allocated beside arrays of `xp` (`planned_bytes`). The adjoint of an elemental is that of -p and the path
    back, times e^{-ipd} with d the displacement's end. Raises InputError.
    """
    times, k = _checked(vectors, insertions, first), vectors.shape[-1]
    field = SlicedField(vectors, 0, 1)
    tile = slices_per_tile(
        [field],
        times,
        device_bytes,
        lambda count: planned_bytes(vectors, links, insertions, xp, count),
        f"elementals of {k} eigenvectors and {len(insertions.momenta)} momenta",
    )
    paths = insertions.links_for(links, np.dtype(vectors.dtype))
    shape = (times, len(insertions.momenta), len(insertions.displacements), k, k)
    result = np.empty(shape, np.complex128)
    for part in streamed([field], times, tile, xp):
        out = result[part.first : part.first + part.count]
        _fill(out, part.parts[0], paths, insertions, first + part.first)
    return result


def _fill(
    out: NDArray[np.complex128], vectors: Array, links: Array | None, insertions: Insertions, first: int
) -> None:
    """The elementals of a tile; what they were made of is free again when this returns."""
    for number, products in insertions.between(vectors, vectors, links, first):
        out[:, :, number] = copy_to_host(products).swapaxes(0, 1)


def planned_bytes(
    vectors: Stored, links: Array | None, insertions: Insertions, xp: ModuleType, tile: int
) -> int:
    """Bytes of `xp` that `elementals` allocates at most.

    With tiles of so many slices, without the result.
    """
    times, *_, k = vectors.shape
    dtype = np.dtype(vectors.dtype)
    buffers = buffer_bytes([SlicedField(vectors, 0, 1)], times, tile, xp)
    scratch = insertions.scratch_bytes((tile, *vectors.shape[1:]), k, dtype, xp)
    return buffers + scratch + insertions.links_bytes(links, dtype)


def _checked(vectors: Stored, insertions: Insertions, first: int) -> int:
    """Number of slices. Raises InputError for vectors of another lattice."""
    lattice = insertions.lattice
    slices = (2, lattice.sites_per_slice, COLOURS)
    if len(vectors.shape) != 5 or vectors.shape[1:4] != slices or not vectors.shape[4]:
        raise InputError(
            f"eigenvectors on {lattice} have shape (time, {', '.join(map(str, slices))}, eigenvector), "
            f"got {vectors.shape}"
        )
    if not 0 <= first <= lattice.time_extent - vectors.shape[0]:
        raise InputError(
            f"{vectors.shape[0]} slices of eigenvectors from slice {first} on are not among the "
            f"{lattice.time_extent} of {lattice}"
        )
    return vectors.shape[0]
