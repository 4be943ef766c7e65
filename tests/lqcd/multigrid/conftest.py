"""A small rough Wilson-clover operator for the tests of multigrid, and dense matrices."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.lattice.geometry import Lattice
from support.matrices import matrix_of


@pytest.fixture
def wilson() -> Iterator[Callable[..., WilsonOperator]]:
    """M on rough links, antiperiodic in t, with a clover term, computed by the reference kernels."""

    def make(extents: tuple[int, ...] = (4, 4, 4, 4), mass: float = 0.1, **options: Any) -> WilsonOperator:
        lattice = Lattice(extents)  # type: ignore[arg-type]
        rng = np.random.default_rng(1409)
        shape = (4, 2, lattice.half_volume, 3, 3)
        noise = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        links, upper = np.linalg.qr(np.eye(3) + 0.3 * noise)
        links *= np.sign(np.diagonal(upper, axis1=-2, axis2=-1).real)[..., None, :]  # near one, not minus one
        links /= np.linalg.det(links)[..., None, None] ** (1 / 3)
        made = wilson_links(links, lattice, boundary="antiperiodic", csw=1.0)
        dtype = options.pop("dtype", np.complex128)
        return WilsonOperator(WilsonDslash(made, dtype), mass)

    with kernels_of("reference"):
        yield make


@pytest.fixture
def draw() -> Callable[..., NDArray]:
    """Complex normal numbers of a shape."""
    rng = np.random.default_rng(2718)

    def draw(*shape: int) -> NDArray:
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    return draw


@pytest.fixture
def dense() -> Callable[[Any, tuple[int, ...]], NDArray]:
    """The matrix of a function of fields ``[*shape, N]``."""
    return matrix_of
