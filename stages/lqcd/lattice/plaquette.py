"""Plaquette, link trace and distance from SU(3) of a gauge field.

Everything is computed in double precision, whatever the precision of the links, in fixed blocks of sites that
are added up in a fixed order: the digits do not depend on the number of threads, and no temporary grows with
the volume.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.lattice.threads import in_threads

BLOCK = 4096
"""Sites (or links) that one kernel call sums."""


class Plaquette(NamedTuple):
    """Mean of Re tr P / 3 over all plaquettes, over the spatial planes, and over the planes that contain t.

    MILC prints sums over three planes (``ss = 3 * spatial``, ``st = 3 * temporal``); openQCD and DDalphaAMG
    store ``3 * total``; Chroma, Grid and NERSC's header use `total` itself.
    """

    total: float
    spatial: float
    temporal: float


class LinkStatistics(NamedTuple):
    """Mean of Re tr U / 3, largest |(U^dag U - 1)_ij| and |det U - 1| of all links; NaN if an entry is."""

    trace: float
    unitarity_deviation: float
    determinant_deviation: float


def plaquette(links: NDArray, lattice: Lattice) -> Plaquette:
    """Mean of Re tr [U_mu(x) U_nu(x+mu) U_mu(x+nu)^dag U_nu(x)^dag] / 3; links ``[mu, parity, site, 3, 3]``.

    Raises InputError for links of another shape.
    """
    from stages.lqcd.lattice.compiled import compile_for, plaquette_sums

    expected = (4, 2, lattice.half_volume, 3, 3)
    if links.shape != expected:
        raise InputError(f"links on {lattice} have shape {expected} (mu parity site 3 3), got {links.shape}")
    forward = [[lattice.neighbour(parity, mu, 1) for mu in range(4)] for parity in (EVEN, ODD)]

    def arguments(block: slice) -> tuple[NDArray, NDArray, int]:
        return links, np.array([[sites[block] for sites in of_parity] for of_parity in forward]), block.start

    def sums(block: slice) -> tuple[float, float]:
        return plaquette_sums(*arguments(block))

    compile_for(plaquette_sums, *arguments(slice(0, 1)))
    spatial, temporal = (
        math.fsum(part) / (9 * lattice.volume)
        for part in zip(*in_threads(sums, _blocks(lattice.half_volume)), strict=True)
    )
    return Plaquette((spatial + temporal) / 2, spatial, temporal)


def link_statistics(links: NDArray) -> LinkStatistics:
    """Trace and deviations from SU(3) in one pass over C-contiguous links ``[..., 3, 3]``."""
    from stages.lqcd.lattice.compiled import compile_for, link_sums

    matrices = links.reshape(-1, 3, 3)
    compile_for(link_sums, matrices[:1])
    parts = in_threads(lambda block: link_sums(matrices[block]), _blocks(len(matrices)))
    traces, unitarity, determinant = zip(*parts, strict=True)
    # np.max, unlike max, hands on a NaN.
    return LinkStatistics(
        math.fsum(traces) / (3 * len(matrices)), math.sqrt(np.max(unitarity)), math.sqrt(np.max(determinant))
    )


def _blocks(length: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))
