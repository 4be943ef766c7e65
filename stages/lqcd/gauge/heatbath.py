"""Quenched SU(3) configurations by heat bath and over-relaxation: Wilson action, one chain at a time."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels import heatbath
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import empty_field, repeat
from stages.lqcd.kernels.random_numbers import philox_key
from stages.lqcd.lattice.geometry import Lattice

HOT_START = 2**32 - 1
"""The number of the sweep at beta = 0 that begins a chain."""

Progress = Callable[[int, int], None]
"""progress(sweeps done, sweeps in all), after every sweep."""


def thermalised(
    lattice: Lattice,
    beta: float,
    seed: int,
    label: str,
    sweeps: int,
    overrelaxation: int,
    progress: Progress | None = None,
    xp: ModuleType = np,
) -> Array:
    """The last configuration of a chain of `sweeps` sweeps, links ``[mu, parity, site, 3, 3]`` in SU(3).

    It is made where arrays of `xp` live: by the CPU kernels for NumPy, on the device for CuPy.

    beta = 6/g^2. A sweep is a heat-bath pass over all links, then `overrelaxation` over-relaxation passes.
    The start is hot (random links), so that chains have nothing in common: ordered links would begin every
    one of them with large Polyakov loops in the trivial topological sector. At beta = 6 with 4
    over-relaxation passes, the plaquette of 8^3 x 16 is in equilibrium after 20 sweeps, and Polyakov loops
    are after 30.

    The chain is a function of its arguments, the same bits for any number of threads (another processor, and
    a GPU, may round logarithms otherwise). Raises InputError.
    """
    if not beta > 0:
        raise InputError(f"beta must be positive, got {beta}")
    if sweeps < 1 or overrelaxation < 0:
        raise InputError(
            "sweeps must be at least 1 and overrelaxation at least 0, "
            f"got sweeps = {sweeps}, overrelaxation = {overrelaxation}"
        )
    key = philox_key(seed, label)  # noise has other counters: seed and label may be the same
    links = empty_field((4, 2, lattice.half_volume, 3, 3), complex, xp)
    repeat(links.reshape(-1, 3, 3), to_device_like(np.eye(3), links))
    heatbath.heat_bath(links, lattice, 0.0, key, HOT_START)
    for sweep in range(sweeps):
        heatbath.heat_bath(links, lattice, beta, key, sweep)
        for _ in range(overrelaxation):
            heatbath.over_relax(links, lattice)
        if progress:
            progress(sweep + 1, sweeps)
    return links
