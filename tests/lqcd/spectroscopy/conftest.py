"""A rough Wilson-clover operator on a tiny lattice, and its dense inverse."""

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_lattice import LATTICE

from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.gauge.wilson_links import wilson_links
from support.matrices import matrix_of, random_su3


@pytest.fixture(scope="session")
def thin_links() -> NDArray:
    """SU(3) links ``[mu, parity, site, 3, 3]``."""
    return random_su3(np.random.default_rng(20261121), 4, 2, LATTICE.half_volume, size=0.3)


@pytest.fixture(scope="session")
def operator(thin_links: NDArray) -> WilsonOperator:
    links = wilson_links(thin_links, LATTICE, boundary="antiperiodic", csw=1.3)
    return WilsonOperator(WilsonDslash(links), -0.2)


@pytest.fixture(scope="session")
def inverse(operator: WilsonOperator) -> NDArray:
    """M^-1 as a matrix ``[parity, site, 12, parity, site, 12]``."""
    matrix = matrix_of(operator.apply, operator.shape)
    return np.linalg.inv(matrix).reshape(*operator.shape, *operator.shape)
