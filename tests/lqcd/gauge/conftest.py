"""Random links and gauge transformations."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

RandomSU3 = Callable[..., NDArray]
Transform = Callable[[Array, Array, Lattice, int], Array]


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request: pytest.FixtureRequest) -> ModuleType:
    """The array library, for functions that call no kernels."""
    return import_module(request.param)


@pytest.fixture
def random_su3() -> RandomSU3:
    """random_su3(seed, *shape) -> SU(3) matrices ``[*shape, 3, 3]`` at random (a gauge field of beta = 0)."""

    def draw(seed: int, *shape: int) -> NDArray:
        rng = np.random.default_rng(seed)
        q, _ = np.linalg.qr(rng.normal(size=(*shape, 3, 3)) + 1j * rng.normal(size=(*shape, 3, 3)))
        q[..., 0] /= np.linalg.det(q)[..., None]
        return q

    return draw


@pytest.fixture
def transformed() -> Transform:
    """transformed(links, g, lattice, hops): G(x) X_mu(x) G(x + hops mu)^dag, g ``[parity, site, 3, 3]``."""

    def transform(links: NDArray, g: NDArray, lattice: Lattice, hops: int) -> NDArray:
        result = np.empty_like(links)
        for mu in range(4):
            for parity in (EVEN, ODD):
                there = g[(parity + hops) % 2][lattice.neighbour(parity, mu, hops)]
                result[mu, parity] = g[parity] @ links[mu, parity] @ there.conj().swapaxes(-1, -2)
        return result

    return transform
