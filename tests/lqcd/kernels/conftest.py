"""Fields of the tests of kernels, in single and in double precision."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

WIDE = (17, 33)
"""Numbers of right-hand sides that leave a rest of vectors; a quick run compiles them in single precision."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        wide = given.get("n") in WIDE and given.get("dtype") == "complex128"
        if wide and given.get("backend") != "cuda" and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=["complex64", "complex128"])
def dtype(request: pytest.FixtureRequest) -> np.dtype:
    return np.dtype(request.param)


@pytest.fixture
def tolerance(dtype: np.dtype) -> float:
    """What rounding may change in a result of order one with some hundred terms."""
    return 2e-6 if dtype == np.complex64 else 4e-15


@pytest.fixture
def random(dtype: np.dtype) -> Callable[..., NDArray]:
    """Draws complex normal fields of a given shape in the test's precision."""
    rng = np.random.default_rng(20261103)

    def draw(*shape: int) -> NDArray:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)

    return draw


@pytest.fixture
def multigrid_precision(backend, dtype: np.dtype) -> None:
    """On a GPU the kernels of multigrid are in single precision; that they refuse double has its own test."""
    if backend.xp is not np and dtype == np.complex128:
        pytest.skip("multigrid on a GPU is in single precision")
