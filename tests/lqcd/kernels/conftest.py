"""One body, all backends: fixtures that run a kernel test on NumPy, on the CPU kernels and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import to_host


@dataclass(frozen=True)
class Backend:
    """A kernel package and the array library it works on."""

    kernels: ModuleType
    xp: ModuleType

    def array(self, values: NDArray) -> Any:
        """A copy of `values` where this backend works."""
        return self.xp.array(values)

    def host(self, array: Any) -> NDArray:
        return to_host(array)


@pytest.fixture(params=["reference", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param != "cuda":
        return Backend(import_module(f"stages.lqcd.kernels.{request.param}"), np)
    cupy = pytest.importorskip("cupy")
    return Backend(import_module("stages.lqcd.kernels.cuda"), cupy)


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
