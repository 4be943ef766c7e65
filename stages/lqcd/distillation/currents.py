"""Current insertions: matrix elements of Dirac matrices, momenta and displacements between solutions."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.distillation.streaming import (
    SlicedField,
    Tile,
    buffer_bytes,
    slices_per_tile,
    streamed,
)
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import assign, slices_like
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS
from stages.lqcd.kernels.transfer import Stored, copy_to_host
from stages.lqcd.lattice.geometry import Lattice


def current_insertions(
    left: Stored,
    right: Stored,
    links: Array | None,
    insertions: Insertions,
    gammas: ArrayLike,
    xp: ModuleType,
    device_bytes: int,
) -> NDArray[np.complex128]:
    """sum_x psi_i^dag Gamma e^{ipx} D psi_j: complex128 ``[time, gamma, momentum, displacement, i, j]``.

    left, right: solutions ``[parity, site, 12, column]``, component 3 * spin + colour, in `xp` or anywhere
    (`streamed`), multiplied in the precision of the right ones; gammas: ``[gamma, 4, 4]`` in the
    DeGrand-Rossi basis, with the gamma5 of the caller's choice; links: as for `elementals`. device_bytes:
    bound on what is allocated beside arrays of `xp` (`planned_bytes`). The result is on the host.

    The sixteen products of pairs of spins are one matrix product on each slice, whatever the number of Dirac
    matrices. Raises InputError.
    """
    lattice, matrices = insertions.lattice, _checked_gammas(gammas)
    fields = (_sliced("left", left, lattice), _sliced("right", right, lattice))
    times, ni, nj = lattice.time_extent, left.shape[-1], right.shape[-1]
    tile = slices_per_tile(
        fields,
        times,
        device_bytes,
        lambda count: planned_bytes(left, right, links, insertions, matrices, xp, count),
        f"insertions between {ni} and {nj} columns at {len(insertions.momenta)} momenta",
    )
    dtype = np.dtype(right.dtype)
    paths = insertions.links_for(links, dtype)
    shape = (times, len(matrices), len(insertions.momenta), len(insertions.displacements), ni, nj)
    result = np.empty(shape, np.complex128)
    for part in streamed(fields, times, tile, xp):
        _fill(result[part.first : part.first + part.count], part, paths, insertions, matrices, dtype)
    return result


def _fill(
    out: NDArray[np.complex128],
    tile: Tile,
    links: Array | None,
    insertions: Insertions,
    gammas: NDArray,
    dtype: np.dtype,
) -> None:
    """The insertions of a tile; what they were made of is free again when this returns."""
    left, right = (
        spins_as_columns(field, start, tile.count, insertions.lattice, dtype)
        for field, start in zip(tile.parts, tile.starts, strict=True)
    )
    for number, products in insertions.between(left, right, links, tile.first):
        out[:, :, :, number] = copy_to_host(_with_gammas(products, gammas)).transpose(1, 2, 0, 3, 4)


def planned_bytes(
    left: Stored,
    right: Stored,
    links: Array | None,
    insertions: Insertions,
    gammas: NDArray,
    xp: ModuleType,
    tile: int,
) -> int:
    """Bytes of `xp` that `current_insertions` allocates at most.

    With tiles of so many slices, without the result.
    """
    lattice, dtype = insertions.lattice, np.dtype(right.dtype)
    times, sites, ni, nj = lattice.time_extent, lattice.sites_per_slice, left.shape[-1], right.shape[-1]
    fields = _sliced("left", left, lattice), _sliced("right", right, lattice)
    buffers = buffer_bytes(fields, times, tile, xp)
    spinors = tile * 2 * sites * COMPONENTS * (ni + nj) * dtype.itemsize
    shape = (tile, 2, sites, COLOURS, SPINS * nj)
    scratch = insertions.scratch_bytes(shape, SPINS * ni, dtype, xp)
    pairs = len(insertions.momenta) * tile * ni * nj * (SPINS**2 + len(gammas)) * np.dtype(complex).itemsize
    return buffers + spinors + scratch + pairs + insertions.links_bytes(links, dtype)


def spins_as_columns(solutions: Array, start: int, times: int, lattice: Lattice, dtype: np.dtype) -> Array:
    """Slices start, start + 1, ... of ``[parity, site, 12, N]`` as ``[time, parity, site, 3, 4 N]``: a copy.

    Column spin * N + j is spin and column j of the solutions.
    """
    n = solutions.shape[-1]
    slices = solutions.reshape(2, -1, lattice.sites_per_slice, SPINS, COLOURS, n)[:, start : start + times]
    shape = (times, 2, lattice.sites_per_slice, COLOURS, SPINS, n)
    columns = slices_like(solutions, shape, dtype)
    assign(columns, slices.transpose(1, 0, 2, 4, 3, 5))
    return columns.reshape(*shape[:4], SPINS * n)


def _with_gammas(products: Array, gammas: NDArray) -> Array:
    """Sums with Dirac matrices over the spins of products, ``[momentum, time, gamma, i, j]``.

    Of products ``[momentum, time, (spin, i), (spin, j)]``.
    """
    momenta, times, rows, columns = products.shape
    ni, nj = rows // SPINS, columns // SPINS
    by_spin = products.reshape(momenta, times, SPINS, ni, SPINS, nj).swapaxes(3, 4)
    pairs = by_spin.reshape(momenta, times, SPINS**2, ni * nj)
    weights = to_device_like(gammas.reshape(len(gammas), SPINS**2), products)
    return (weights @ pairs).reshape(momenta, times, len(gammas), ni, nj)


def _checked_gammas(gammas: ArrayLike) -> NDArray[np.complex128]:
    matrices = np.asarray(gammas, complex)
    if matrices.ndim != 3 or matrices.shape[1:] != (SPINS, SPINS):
        raise InputError(f"Dirac matrices have shape (number, 4, 4), got {matrices.shape}")
    return matrices


def _sliced(name: str, solutions: Stored, lattice: Lattice) -> SlicedField:
    expected = (2, lattice.half_volume, COMPONENTS)
    if len(solutions.shape) != 4 or solutions.shape[:3] != expected or not solutions.shape[3]:
        raise InputError(
            f"{name} solutions on {lattice} have shape {expected} and their number, at least 1, "
            f"got {solutions.shape}"
        )
    return SlicedField(solutions, 1, lattice.sites_per_slice)
