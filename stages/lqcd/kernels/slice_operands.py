"""Checks of the arrays of products on time slices.

Vectors lie by slice, ``[time, parity, site, colour, column]``, solutions as fields do, ``[parity, site, 12,
column]``; sites of a slice are consecutive in both.
"""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.lattice.errors import InputError
from stages.lqcd.lattice.geometry import Lattice


def check_vectors(name: str, vectors: Array) -> None:
    """Raise InputError unless `vectors` is C-contiguous complex ``[time, parity, site, 3, column]``."""
    if vectors.dtype not in (np.complex64, np.complex128):
        raise InputError(f"{name} must be complex64 or complex128, got {vectors.dtype}")
    if vectors.ndim != 5 or vectors.shape[1] != 2 or vectors.shape[3] != COLOURS or not vectors.size:
        raise InputError(f"{name} must have shape (time, 2, site, 3, column), got {vectors.shape}")
    check_array(name, vectors, vectors.shape, vectors.dtype)


def check_sink_projection(vectors: Array, solutions: Array, out: Array, first: int) -> None:
    """Raise InputError unless solutions ``[2, site, 12, N]`` of the dtype of `vectors` hold their slices from
    `first` on and `out` is complex128 ``[time, 4, k, N]``.
    """
    check_vectors("vectors", vectors)
    times, _, sites, _, k = vectors.shape
    if solutions.ndim != 4 or solutions.shape[1] % sites or not solutions.size:
        raise InputError(
            f"solutions must have shape (2, a multiple of {sites} sites, {COMPONENTS}, columns), "
            f"got {solutions.shape}"
        )
    shape = (2, solutions.shape[1], COMPONENTS, solutions.shape[3])
    check_array("solutions", solutions, shape, vectors.dtype)
    held = solutions.shape[1] // sites
    if not 0 <= first <= held - times:
        raise InputError(
            f"{times} slices of vectors from slice {first} on are not among the {held} of the solutions"
        )
    check_array("out", out, (times, SPINS, k, solutions.shape[3]), np.dtype(complex))


def check_slice_gram(left: Array, right: Array, out: Array) -> None:
    """Raise InputError unless left, right are vectors on the same sites, out complex128 ``[time, i, j]``."""
    check_vectors("left", left)
    check_array("right", right, (*left.shape[:-1], right.shape[-1]), left.dtype)
    check_array("out", out, (len(left), left.shape[-1], right.shape[-1]), np.dtype(complex))


def check_slice_shift(
    links: Array, field: Array, out: Array, lattice: Lattice, mu: int, step: int, first: int
) -> None:
    """Raise InputError unless links are those of the lattice in the dtype of the field, and field and another
    array out are the same number of slices of it, from `first` on; mu is spatial, step 1 or -1.
    """
    if mu not in (0, 1, 2) or step not in (1, -1):
        raise InputError(f"a shift within slices goes along mu = 0, 1, 2 by step 1 or -1, got {mu} by {step}")
    check_vectors("field", field)
    check_array("links", links, (4, 2, lattice.half_volume, COLOURS, COLOURS), field.dtype)
    times, columns = len(field), field.shape[-1]
    for name, array in (("field", field), ("out", out)):
        check_array(name, array, (times, 2, lattice.sites_per_slice, COLOURS, columns), field.dtype)
    if not 0 <= first <= lattice.time_extent - times:
        raise InputError(
            f"{times} slices from slice {first} on are not among the {lattice.time_extent} of the lattice"
        )
    if array_module(field).may_share_memory(field, out):
        raise InputError("out of a shift must not be its input field: give another array")
