"""Covariant shifts within time slices."""

from __future__ import annotations

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.kernels.operands import check_array, check_slice_vectors
from stages.lqcd.lattice.geometry import Lattice


def slice_shift(
    links: Array, field: Array, out: Array, lattice: Lattice, mu: int, step: int, first: int = 0
) -> Array:
    """out(x) = U_mu(x) field(x + mu) for step 1, U_mu(x - mu)^dag field(x - mu) for step -1; mu spatial.

    links ``[mu, parity, site, 3, 3]``; field, out ``[time, parity, site, 3, column]``, the slices first,
    first + 1, ... of the lattice; all of one dtype, complex64 or complex128. Returns `out`, another array
    than `field`; raises InputError.
    """
    _check_operands(links, field, out, lattice, mu, step, first)
    return kernel("slice_shift.slice_shift", type(field))(links, field, out, lattice, mu, step, first)


def laplacian_step(links: Array, field: Array, lattice: Lattice, time: int, factor: float) -> Array:
    """(1 + c Laplacian) f: sum_{j = x, y, z} [U_j(x) f(x+j) + U_j(x-j)^dag f(x-j)] - 6 f(x), times c, and f.

    links ``[mu, parity, site, 3, 3]`` of the lattice; field f ``[parity, site of the slice, 12, column]``, on
    the slice `time`; c = `factor`; the result is new.
    """
    return kernel("slice_shift.laplacian_step", type(field))(links, field, lattice, time, factor)


def _check_operands(
    links: Array, field: Array, out: Array, lattice: Lattice, mu: int, step: int, first: int
) -> None:
    """Raise InputError unless the operands of a shift fit each other.

    Links are those of the lattice in the dtype of the field, and field and another array out are the same
    number of slices of it, from `first` on; mu is spatial, step 1 or -1.
    """
    if mu not in (0, 1, 2) or step not in (1, -1):
        raise InputError(f"a shift within slices goes along mu = 0, 1, 2 by step 1 or -1, got {mu} by {step}")
    check_slice_vectors("field", field)
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
