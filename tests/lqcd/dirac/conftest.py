"""Rough gauge fields and links of both staggered operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

from stages.lqcd.gauge.hisq import StaggeredLinks, hisq_links, naive_links
from stages.lqcd.lattice.geometry import Lattice


@pytest.fixture
def rough_links() -> Callable[[int, Lattice], NDArray]:
    """rough_links(seed, lattice): SU(3) links exp(i H) ``[mu, parity, site, 3, 3]``, elements of H 0.4."""

    def draw(seed: int, lattice: Lattice) -> NDArray:
        rng = np.random.default_rng(seed)
        shape = (4, 2, lattice.half_volume, 3, 3)
        matrix = 0.4 * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
        hermitian = (matrix + matrix.conj().swapaxes(-1, -2)) / 2
        hermitian -= np.eye(3) * np.trace(hermitian, axis1=-2, axis2=-1)[..., None, None] / 3
        return expm(1j * hermitian)

    return draw


@pytest.fixture(params=["hisq", "naive"])
def build(request: pytest.FixtureRequest) -> Callable[[NDArray, Lattice], StaggeredLinks]:
    """build(thin links, lattice): the antiperiodic links of the improved and of the naive operator."""

    def construct(thin: NDArray, lattice: Lattice) -> StaggeredLinks:
        if request.param == "naive":
            return naive_links(thin, lattice, boundary="antiperiodic")
        return hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=-0.1)

    return construct
