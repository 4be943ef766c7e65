"""Stages of low-mode averaging: mode currents once per configuration, and their part of every loop."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Dims, Resources, stage
from stages.loops.costs import low_modes_cost
from stages.loops.current_loops import FlavourLoops, Masses
from stages.lqcd.estimators.low_modes import low_mode_current, low_mode_density, mode_currents
from stages.lqcd.estimators.trace import CurrentLinks
from stages.lqcd.lattice.geometry import DIRECTIONS
from stages.lqcd.solvers.deflation import StaggeredSpace


class LowModeLoops(NamedTuple):
    """Currents of each mode of B = -D_eo D_oe and its odd partner, lattice units; good for every mass.

    At mass m, J_mu(t) = sum_n current_n / (eigenvalue_n + 4 m^2).
    """

    eigenvalue: Annotated[np.ndarray, Dims("eigenvector")]
    """Ascending."""
    residual: Annotated[np.ndarray, Dims("eigenvector")]
    """|B v - lambda v| of the unit vectors v whose currents these are."""
    current: Annotated[np.ndarray, Dims("eigenvector", "direction", "time")]
    """Sign and normalisation as for `CurrentLoops`."""
    extents: Annotated[np.ndarray, Dims("direction")]
    """int64, x y z t."""


@stage(
    version="1",
    over=("config",),
    resources=Resources(device=1),
    labels={"direction": DIRECTIONS},
    cost=low_modes_cost,
)
def low_mode_loops(deflation: StaggeredSpace, *, at: At, current_links: str = "thin") -> LowModeLoops:
    """The exact part of the one-link current that the modes of a deflation carry, mode by mode.

    current_links: 'thin', 'smeared' or 'fat', as for the noisy part. Vectors need not be exact: an error of
    their span enters the sum of low part and noisy remainder in first order, by about
    residual_n / (lambda_max_kept + 4 m^2) of a mode's own part, which the record bounds at m = 0. Raises
    InputError.
    """
    dslash = deflation.dslash
    links = CurrentLinks(dslash.links, current_links)
    with links.unchanged():
        modes = mode_currents(dslash, links, deflation.even, lambda done, total: at.progress(done, total))
    at.record(
        modes=len(modes.eigenvalue),
        eigenvalue_range=[float(modes.eigenvalue[0]), float(modes.eigenvalue[-1])],
        residual_max=float(modes.residual.max()),
        leakage=float(modes.residual.max() / modes.eigenvalue[-1]),
    )
    return LowModeLoops(*modes, np.array(dslash.lattice.extents))


@stage(version="1", over=("config", "noise", "probe"), transient=True)
def with_low_modes(loops: FlavourLoops, low: LowModeLoops, *, at: At, masses: Masses) -> FlavourLoops:
    """The noisy remainder of each noise vector and probe, and the exact low part of that mass added to it.

    The low part of the difference is the difference of the low parts.
    """
    pairs = zip(loops, low_flavours(low, masses), strict=True)
    return FlavourLoops(*(noisy + exact for noisy, exact in pairs))


def low_flavours(low: LowModeLoops, masses: Masses) -> FlavourLoops:
    """The low part alone: current ``[flavour, direction, time]``, condensate ``[flavour, parity]``."""
    volume = int(np.prod(low.extents))
    current = [low_mode_current(low.eigenvalue, low.current, mass) for mass in (masses.light, masses.strange)]
    density = [low_mode_density(low.eigenvalue, mass, volume) for mass in (masses.light, masses.strange)]
    return FlavourLoops(*(np.stack([a, b, a - b]) for a, b in (current, density)))
