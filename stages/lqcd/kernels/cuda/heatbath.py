"""Heat bath and over-relaxation of SU(3) links, as described in `stages.lqcd.kernels.cpu.heatbath`.

The same random numbers as there make the same links up to rounding, until rounding decides once whether a
proposal is accepted: from then on the chains are different ones.
"""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import gauge
from stages.lqcd.kernels.operands import check_array, check_finite_links
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def heat_bath(links: cupy.ndarray, lattice: Lattice, beta: float, key: tuple[int, int], sweep: int) -> None:
    """One heat-bath sweep over all links, complex128 ``[mu, parity, site, 3, 3]`` in SU(3), in place.

    beta >= 0 (new links are random at 0); key: two 32-bit words of the generator; sweep: a number below
    2^32, a new one for each sweep of a chain. Raises InputError for links that are not finite.
    """
    _check(links, lattice)
    check_finite_links(links, lattice)
    _sweep(links, lattice, False, beta / 3, *key, sweep)


def over_relax(links: cupy.ndarray, lattice: Lattice) -> None:
    """One over-relaxation sweep over all links, in place: reflections that leave the action as it is."""
    _check(links, lattice)
    _sweep(links, lattice, True, 0.0, 0, 0, 0)


def _check(links: cupy.ndarray, lattice: Lattice) -> None:
    check_array("links", links, (4, 2, lattice.half_volume, 3, 3), np.dtype(complex))


def _sweep(links: cupy.ndarray, lattice: Lattice, reflect: bool, weight: float, *random: int) -> None:
    kernel, words = gauge.update_links(lattice), [np.uint32(word) for word in random]
    for mu in range(4):
        for parity in (EVEN, ODD):
            run(kernel, links, *map(np.int32, (mu, parity, reflect)), np.float64(weight), *words)
