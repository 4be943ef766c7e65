"""Checks of the arrays handed to the kernels of multigrid, common to all packages."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.lattice.errors import InputError


def check_aggregation(vectors: Array, sites: Array, fine_sites: int) -> None:
    """Raise InputError unless vectors are complex ``[aggregate, 2, m, k]`` and sites fit m and the field."""
    if vectors.dtype not in (np.complex64, np.complex128):
        raise InputError(f"vectors of aggregates must be complex64 or complex128, got {vectors.dtype}")
    if vectors.ndim != 4 or vectors.shape[1] != 2:
        raise InputError(
            f"vectors of aggregates have shape (aggregates, 2 chiralities, m, vectors), got {vectors.shape}"
        )
    if vectors.strides[3] != vectors.itemsize or vectors.strides[2] != vectors.itemsize * vectors.shape[3]:
        raise InputError(f"the rows of aggregates must be contiguous, got strides {vectors.strides}")
    if sites.dtype != np.int32 or sites.ndim != 2 or not sites.flags.c_contiguous:
        raise InputError(
            f"sites must be C-contiguous int32 [aggregate, site], got {sites.dtype} {sites.shape}"
        )
    if len(sites) != len(vectors) or vectors.shape[2] % sites.shape[1]:
        raise InputError(f"sites {sites.shape} do not fit vectors {vectors.shape}")
    if int(sites.min()) < 0 or int(sites.max()) >= fine_sites:
        raise InputError(f"sites must lie between 0 and {fine_sites - 1}, got {sites.min()} to {sites.max()}")


def check_transfer(packed: Any, fine: Array, coarse: Array) -> None:
    """Raise InputError unless the fields are ``[site, 2 n, N]`` and ``[aggregate, 2 k, N]``."""
    if fine.ndim != 3:
        raise InputError(f"a field must have shape (sites, components, right-hand sides), got {fine.shape}")
    shape = (packed.fine_sites, 2 * packed.components, fine.shape[2])
    check_array("the fine field", fine, shape, packed.dtype)
    shape = (packed.aggregate_count, 2 * packed.vector_count, fine.shape[2])
    check_array("the coarse field", coarse, shape, packed.dtype)


def check_coarse_links(links: Array, neighbours: Array) -> None:
    """Raise InputError unless links are complex ``[site, D, n, n]`` and neighbours int32 ``[site, D]``."""
    if links.dtype not in (np.complex64, np.complex128) or not links.flags.c_contiguous:
        raise InputError(
            f"coarse links must be C-contiguous and complex64 or complex128, got {links.dtype} with strides "
            f"{links.strides}"
        )
    if links.ndim != 4 or links.shape[2] != links.shape[3]:
        raise InputError(f"coarse links have shape (sites, directions, n, n), got {links.shape}")
    check_array("neighbours", neighbours, links.shape[:2], np.dtype(np.int32))


def check_coarse_dslash(packed: Any, x: Array, out: Array, diagonal: Array | None) -> None:
    """Raise InputError unless x, out, diagonal are ``[site, n, N]`` of the links' dtype and x is not out."""
    if x.ndim != 3:
        raise InputError(f"x must have shape (sites, components, right-hand sides), got {x.shape}")
    check_array("x", x, (len(x), packed.components, x.shape[2]), packed.dtype)
    if len(x) < packed.input_sites:
        raise InputError(f"x must have at least {packed.input_sites} sites, as neighbours say, got {len(x)}")
    shape = (len(packed.neighbours), packed.components, x.shape[2])
    check_array("out", out, shape, packed.dtype)
    if diagonal is not None:
        check_array("diagonal", diagonal, shape, packed.dtype)
    if array_module(x).may_share_memory(out, x):
        raise InputError("out of the dslash must not be its input x: give another array")
