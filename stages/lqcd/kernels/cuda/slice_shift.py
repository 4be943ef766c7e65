"""Covariant shifts within time slices."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import slice_shift as shapes
from stages.lqcd.kernels.slice_operands import check_slice_shift
from stages.lqcd.lattice.geometry import Lattice


def slice_shift(
    links: cupy.ndarray,
    field: cupy.ndarray,
    out: cupy.ndarray,
    lattice: Lattice,
    mu: int,
    step: int,
    first: int = 0,
) -> cupy.ndarray:
    """out(x) = U_mu(x) field(x + mu) for step 1, U_mu(x - mu)^dag field(x - mu) for step -1; mu spatial.

    links ``[mu, parity, site, 3, 3]``; field, out ``[time, parity, site, 3, column]``, the slices first,
    first + 1, ... of the lattice; all of one dtype, complex64 or complex128. Returns `out`, another array
    than `field`; raises InputError.
    """
    check_slice_shift(links, field, out, lattice, mu, step, first)
    columns, rows = field.shape[-1], field.size // field.shape[-1] // 3
    kernel = shapes.slice_shift(lattice, field.dtype, mu, step, rows, columns)
    run(kernel, links[mu], field, out, np.int32(rows), np.int32(columns), np.int32(first))
    return out
