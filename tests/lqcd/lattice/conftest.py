"""Random gauge links on a lattice of four different extents."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.lattice.geometry import Lattice

RandomSU3 = Callable[[tuple[int, ...], int], NDArray]


def draw_su3(shape: tuple[int, ...], seed: int) -> NDArray:
    """Random SU(3) matrices complex128 ``[*shape, 3, 3]``."""
    rng = np.random.default_rng(seed)
    gaussian = rng.normal(size=(*shape, 3, 3)) + 1j * rng.normal(size=(*shape, 3, 3))
    unitary, _ = np.linalg.qr(gaussian)
    return unitary / (np.linalg.det(unitary) ** (1 / 3))[..., None, None]


@pytest.fixture(scope="session")
def random_su3() -> RandomSU3:
    return draw_su3


@pytest.fixture(scope="session")
def lattice() -> Lattice:
    return Lattice((4, 6, 2, 8))


@pytest.fixture(scope="session")
def links(lattice: Lattice) -> NDArray:
    """Random SU(3) links complex128 ``[mu, parity, site, 3, 3]``."""
    return draw_su3((4, 2, lattice.half_volume), seed=20260)
