"""Sources of distillation (arXiv:0905.2160) and stochastic LapH (arXiv:1104.3870), built block by block."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.distillation.columns import Columns
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import zero_field
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS
from stages.lqcd.kernels.transfer import Stored
from stages.lqcd.lattice.geometry import Lattice


def distillation_sources(
    vectors: Stored, lattice: Lattice, columns: Columns, block: range, xp: ModuleType = np
) -> Array:
    """phi(x, t, spin) = sum_i v_i(x, t) rho(t, spin, i) for a block of columns.

    The result is complex128 ``[parity, site, 12, column]`` in `xp`, `numpy` or `cupy`, component 3 * spin +
    colour. vectors: orthonormal eigenvectors ``[time, parity, site of the slice, colour, eigenvector]``,
    complex64 or complex128, in `xp` or elsewhere, of which the columns use the first `columns.eigenvectors`;
    only slices on which the block is not zero are read. Raises InputError.
    """
    check_vectors(vectors, lattice, columns)
    if not block:
        raise InputError("a block of sources has at least one column")
    width = len(block)
    fields = zero_field((2, lattice.half_volume, COMPONENTS, width), complex, xp)
    slices = fields.reshape(2, lattice.time_extent, -1, SPINS, COLOURS, width)
    for time in columns.times(block):
        rho, basis = columns.on_slice(time, block), to_device_like(vectors[time], fields)
        slice_products.put_sources(basis, rho, slices[:, time])
    return fields


def check_vectors(vectors: Stored, lattice: Lattice, columns: Columns) -> None:
    """Raises InputError for eigenvectors of another lattice, or fewer of them than the columns need."""
    expected = (lattice.time_extent, 2, lattice.sites_per_slice, COLOURS)
    if len(vectors.shape) != 5 or vectors.shape[:4] != expected:
        raise InputError(
            f"eigenvectors of the Laplacian on {lattice} have shape {expected} and their number "
            f"(time parity site colour eigenvector), got {vectors.shape}"
        )
    if columns.time_extent != lattice.time_extent:
        raise InputError(f"columns are on {columns.time_extent} time slices, the lattice is {lattice}")
    if columns.eigenvectors > vectors.shape[4]:
        raise InputError(
            f"columns are of {columns.eigenvectors} eigenvectors, but {vectors.shape[4]} are given: compute "
            "more, or take fewer"
        )
