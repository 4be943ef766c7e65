"""Vectors to the form in which they are stored, and back, on every backend."""

from typing import Any

import numpy as np
import pytest

from stages.lqcd.eigen.stored_vectors import from_store, to_store
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.geometry import Lattice

LATTICE = Lattice((4, 4, 2, 6))
ERROR = {"double": 0.0, "single": 6e-8, "half": 1.7e-5}
"""Of a real or imaginary part, relative to the largest of its site and vector."""


@pytest.fixture
def wide(backend: Any) -> Any:
    """Vectors of very different size, as the leading columns of a wider array."""
    rng = np.random.default_rng(1902)
    numbers = rng.standard_normal((LATTICE.half_volume, 3, 9, 2)) * 10.0 ** rng.integers(-9, 3, (1, 1, 9, 1))
    return backend.xp.asarray(numbers.view(complex)[..., 0])[..., :7]


class Recorder:
    """An array on disk would be asked for these parts."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.parts: list[Any] = []

    def __getitem__(self, part: Any) -> np.ndarray:
        self.parts.append(part)
        return self.array[part]


@pytest.mark.parametrize("precision", ERROR)
def test_there_and_back(wide: Any, backend: Any, precision: str) -> None:
    parts, scale = to_store(wide, LATTICE, precision)
    assert parts.shape == (6, LATTICE.sites_per_slice, 3, 7, 2)
    again = from_store(parts, scale, backend.xp)
    assert isinstance(again, backend.xp.ndarray)
    exact, found = as_numpy(wide), as_numpy(again)
    assert found.dtype == (np.complex128 if precision == "double" else np.complex64)
    largest = np.maximum(abs(exact.real), abs(exact.imag)).max(axis=1, keepdims=True)
    for part in ("real", "imag"):
        assert (abs(getattr(exact, part) - getattr(found, part)) <= ERROR[precision] * largest).all()
    assert np.array_equal(exact, found) == (precision == "double")


def test_the_first_axis_is_time(wide: Any) -> None:
    parts, _ = to_store(wide, LATTICE, "double")
    vectors, sites = as_numpy(wide), LATTICE.sites_per_slice
    np.testing.assert_array_equal(parts[4, ..., 0], vectors[4 * sites : 5 * sites].real)


def test_vectors_in_double_on_the_host_are_not_copied() -> None:
    vectors = np.zeros((LATTICE.half_volume, 3, 9), complex)
    for field in (vectors, vectors[..., :4]):
        assert np.shares_memory(to_store(field, LATTICE, "double")[0], vectors)


@pytest.mark.parametrize("precision", ["single", "half"])
def test_only_what_is_asked_for_is_read(wide: Any, backend: Any, precision: str) -> None:
    parts, scale = (Recorder(array) for array in to_store(wide, LATTICE, precision))
    first = from_store(parts, scale, backend.xp, 2)
    np.testing.assert_array_equal(
        as_numpy(first), as_numpy(from_store(parts.array, scale.array, np))[..., :2]
    )
    whole = (slice(None), slice(None))
    assert parts.parts == [(t, *whole, slice(None, 2)) for t in range(6)]
    assert scale.parts == (
        [(t, slice(None), slice(None, 2)) for t in range(6)] if precision == "half" else []
    )


def test_zeros_stay_zeros() -> None:
    zeros = np.zeros((LATTICE.half_volume, 3, 2), complex)
    for precision in ERROR:
        assert not from_store(*to_store(zeros, LATTICE, precision), np).any()
