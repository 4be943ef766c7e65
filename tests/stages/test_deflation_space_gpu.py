"""Deflation spaces of the GPU and of the CPU: the same eigenvalues and projectors, each read by the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline import At
from stages.ensemble import configuration, staggered_operator
from stages.loops.deflation_space import DeflationSpace, deflation, deflation_space
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.noise import noise_vectors

pytestmark = pytest.mark.gpu
VECTORS, EXTENTS = 24, (8, 8, 8, 8)


@pytest.fixture(scope="module")
def operators() -> dict[str, StaggeredDslash]:
    gauge = configuration.heatbath_configuration(
        at=At(config="both.1"), extents=EXTENTS, beta=6.0, seed=77, sweeps=4, overrelaxation=1
    )
    return {
        backend: staggered_operator.hisq_operator(
            gauge, at=At(config="both.1", backend=backend), boundary="antiperiodic", naik_epsilon=0.0
        )
        for backend in ("cpu", "cuda")
    }


def space_of(operators: dict[str, StaggeredDslash], backend: str, **options: Any) -> DeflationSpace:
    at = At(config="both.1", backend=backend)
    return deflation_space(operators[backend], at=at, vectors=VECTORS, tolerance=1e-11, **options)


@pytest.fixture(scope="module")
def spaces(operators: dict[str, StaggeredDslash]) -> dict[str, DeflationSpace]:
    return {backend: space_of(operators, backend) for backend in operators}


def test_eigenvalues_and_projectors_agree(operators, spaces):
    np.testing.assert_allclose(spaces["cuda"].eigenvalue, spaces["cpu"].eigenvalue, rtol=1e-10)
    x = noise_vectors(operators["cpu"].lattice, 0, "both.1", 5, range(4))
    within = []
    for backend, space in spaces.items():
        at = At(config="both.1", backend=backend)
        held = deflation(operators["cpu"], space, at=at).even
        within.append(held.within(x))
    np.testing.assert_allclose(*within, rtol=0, atol=1e-7)


@pytest.mark.parametrize("precision", ["double", "single", "half"])
def test_a_space_made_on_either_serves_on_the_other(operators, precision):
    for backend, other in (("cpu", "cuda"), ("cuda", "cpu")):
        space = space_of(operators, backend, precision=precision)
        assert isinstance(space.vectors, np.ndarray)
        held = deflation(operators[other], space, at=At(config="both.1", backend=other)).even
        mine = deflation(operators[backend], space, at=At(config="both.1", backend=backend)).even
        np.testing.assert_allclose(as_numpy(held.vectors), as_numpy(mine.vectors), rtol=0, atol=1e-5)


def test_a_rerun_gives_the_same_vectors(operators: dict[str, StaggeredDslash]) -> None:
    first, second = (space_of(operators, "cuda") for _ in range(2))
    np.testing.assert_allclose(first.eigenvalue, second.eigenvalue, rtol=1e-13)
    np.testing.assert_allclose(first.projected, second.projected, rtol=0, atol=1e-10)
