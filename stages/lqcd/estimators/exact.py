"""The exact trace by point sources on every site and colour: the oracle of estimators on tiny lattices."""

from __future__ import annotations

from itertools import product
from types import ModuleType

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.estimators.stochastic import Loops, Trace, no_loops
from stages.lqcd.estimators.trace import Progress, no_progress
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import zero_field
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.noise.vectors import COLOURS
from stages.lqcd.solvers.solution import column_blocks

LARGEST_VOLUME = 6**4


def exact_loops(trace: Trace, xp: ModuleType, width: int, progress: Progress = no_progress) -> Loops:
    """J_mu(t) ``[1, mu, t]`` and (2/V) tr M^-1 ``[1, parity]`` without noise, in blocks of `width` sources.

    ``[1, flavour, ...]`` of a trace of several flavours.

    Raises InputError above `LARGEST_VOLUME` sites: it takes three solves a site.
    """
    lattice = trace.lattice
    if lattice.volume > LARGEST_VOLUME:
        raise InputError(
            f"an exact trace takes {COLOURS * lattice.volume} solves on {lattice}; it is for lattices "
            f"of up to {LARGEST_VOLUME} sites: use noise"
        )
    loops = no_loops(trace, 1)
    jobs = list(product((EVEN, ODD), column_blocks(COLOURS * lattice.half_volume, width)))
    for number, (parity, block) in enumerate(jobs, start=1):
        contracted = trace.contract(parity, point_sources(lattice.half_volume, block, xp))
        loops.current[0] += contracted.current.sum(axis=0)
        loops.density[0, ..., parity] += contracted.density.sum(axis=0)
        progress(number, len(jobs))
    return loops


def point_sources(sites: int, points: range, xp: ModuleType) -> Array:
    """Unit vectors number `points` = 3 * site + colour, complex128 ``[site, 3, len(points)]``."""
    sources = zero_field((COLOURS * sites, len(points)), np.complex128, xp)
    sources[points.start : points.stop] = to_device_like(np.eye(len(points)), sources)
    return sources.reshape(sites, COLOURS, len(points))
