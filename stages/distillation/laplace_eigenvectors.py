"""Stages of distillation's space: the lowest modes of the spatial Laplacian, and all of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Chunks, Dims, Keyed, Resources, stage
from stages.base.errors import InputError
from stages.base.gpus import gpus_of
from stages.distillation.costs import basis_cost, eigenvectors_cost
from stages.ensemble.smeared_links import SmearedLinks
from stages.lqcd.distillation.eigenvectors import DTYPES, LaplaceSolver
from stages.lqcd.kernels.dispatch import Array, array_module_of
from stages.lqcd.kernels.fields import slices_field
from stages.lqcd.kernels.transfer import copy_to_host, is_page_locked, page_locked, to_device
from stages.lqcd.lattice.geometry import PARITIES

DEVICE_SHARE = 0.3
"""Of a GPU's memory, up to which the eigenvectors of a configuration stay there."""


class LaplaceEigenvectors(NamedTuple):
    """Eigenvectors of -Laplacian on each time slice, orthonormal; lattice units.

    In the convention of `stages.lqcd.distillation.eigenvectors`.
    """

    vectors: Annotated[
        np.ndarray, Dims("time", "parity", "site", "colour", "eigenvector", pieces={"time": 1})
    ]
    """complex64 or complex128; sites of the slice, parity that of x + y + z + t."""
    eigenvalue: Annotated[np.ndarray, Dims("time", "eigenvector")]
    """float64, ascending."""
    residual: Annotated[np.ndarray, Dims("time", "eigenvector")]
    """|-Laplacian v - lambda v|, recomputed."""


@dataclass(frozen=True, eq=False)
class LaplaceBasis:
    """The eigenvectors ``[time, parity, site, colour, eigenvector]`` of all slices of a configuration.

    On a GPU an array there if it is small beside the memory, else one of the host, page-locked, from which
    they are streamed.
    """

    vectors: Array
    values: NDArray[np.float64]


@stage(
    version="1",
    over=("config", "time"),
    resources=Resources(device=1),
    keyed=Keyed(without=("block", "max_restarts")),
    labels={"parity": PARITIES},
    cost=eigenvectors_cost,
)
def laplace_eigenvectors(
    links: SmearedLinks,
    *,
    at: At,
    vectors: int,
    tolerance: float = 1e-10,
    precision: str = "double",
    block: int = 8,
    max_restarts: int = 100,
) -> LaplaceEigenvectors:
    """The lowest `vectors` modes of each of a chunk's time slices, all slices together.

    tolerance: of |A u - alpha u| / 36 for A = 36 - H^2 (`stages.lqcd.dirac.laplacian`). precision: 'double'
    or 'single'. A chunk has an even number of slices and begins at an even one. Raises InputError, and
    EigenpairsNotConverged.
    """
    if precision not in DTYPES:
        raise InputError(f"precision must be one of {', '.join(DTYPES)}, got {precision!r}")
    solver = LaplaceSolver(vectors, block, tolerance, DTYPES[precision], max_restarts)

    def report(restarts: int, done: int, wanted: int, residual: float) -> None:
        at.progress(done, wanted, restarts=restarts, residual=residual)

    modes = solver.solve(links.links, links.lattice, [int(time) for time in at["time"]], report)
    at.record(precision=precision, residual_max=float(modes.residuals.max()))
    return LaplaceEigenvectors(copy_to_host(modes.vectors), modes.values, modes.residuals)


@stage(version="1", over=("config",), transient=True, resident=True, cost=basis_cost)
def laplace_basis(eigenvectors: Chunks[LaplaceEigenvectors], *, at: At, time_extent: int) -> LaplaceBasis:
    """The eigenvectors of all time slices, kept on the worker. Raises InputError for missing slices."""
    parts = list(eigenvectors)
    check_times([int(time) for place, _ in parts for time in place["time"]], time_extent)
    first, xp = parts[0][1].vectors, array_module_of(at.backend)
    shape = (time_extent, *first.shape[1:])
    size = prod(shape) * first.dtype.itemsize
    streamed = xp is not np and size > DEVICE_SHARE * gpus_of(at.backend) * xp.cuda.Device().mem_info[1]
    vectors = page_locked(shape, first.dtype) if streamed else np.empty(shape, first.dtype)
    if streamed:
        at.record(page_locked=is_page_locked(vectors))
    for place, chunk in parts:
        for number, time in enumerate(place["time"]):  # slices are pieces in the store
            vectors[int(time)] = chunk.vectors[number]
    values = np.concatenate([np.asarray(chunk.eigenvalue) for _, chunk in parts])
    if not streamed and xp is not np:
        vectors = to_device(vectors, slices_field(shape, first.dtype, xp))
    return LaplaceBasis(vectors, values)


def check_times(times: Sequence[int], time_extent: int) -> None:
    """Raises InputError unless these are all slices of the lattice, in order."""
    missing = sorted(set(range(time_extent)) - set(times))
    if missing or list(times) != list(range(time_extent)):
        raise InputError(
            f"eigenvectors of the time slices {missing or list(times)} are "
            f"{'missing' if missing else 'out of order'}: all {time_extent} of a configuration are needed"
        )
