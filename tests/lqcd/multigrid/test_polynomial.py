"""The polynomial smoother: each run is minimal, and a start from x is a start from its residual."""

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.multigrid.smoothers import PolynomialSmoother


def best(A: Any, r: NDArray, steps: int) -> NDArray:
    """Of all polynomials of A times r with so many terms the one that leaves least, by least squares."""
    powers = [r]
    for _ in range(steps):
        powers.append(A.apply(powers[-1]))
    fields = np.stack(powers).reshape(steps + 1, -1, r.shape[-1])
    y = np.empty_like(fields[0])
    for n in range(r.shape[-1]):
        basis = fields[..., n].T
        y[:, n] = basis[:, :-1] @ np.linalg.lstsq(basis[:, 1:], basis[:, 0], rcond=None)[0]
    return y.reshape(r.shape)


@pytest.mark.parametrize(("steps", "runs"), [(1, (1,)), (3, (3,)), (4, (4,)), (5, (3, 2)), (6, (3, 3))])
def test_each_run_leaves_the_least(wilson: Any, draw: Any, steps: int, runs: tuple[int, ...]) -> None:
    A, smoother = wilson(mass=0.3), PolynomialSmoother(steps)
    r = draw(*A.shape, 3)
    r[..., 1] = 0
    kept, expected = r.copy(), np.zeros_like(r)
    for count in runs:
        expected += best(A, r - A.apply(expected), count)
    y = np.zeros_like(r)
    smoother.improve(A, r, y)
    assert smoother.runs == runs and np.array_equal(r, kept)
    np.testing.assert_allclose(y, expected, atol=1e-10)
    assert not y[..., 1].any()


@pytest.mark.parametrize("steps", [2, 6])
def test_improving_is_relaxing_the_residual(wilson: Any, draw: Any, steps: int) -> None:
    A, smoother = wilson(mass=0.3), PolynomialSmoother(steps)
    b, x = draw(*A.shape, 3), draw(*A.shape, 3)
    x[..., 2] = 0
    kept, start, y = b.copy(), x.copy(), np.zeros_like(x)
    smoother.improve(A, b - A.apply(x), y)
    smoother.improve(A, b, x)
    assert np.array_equal(b, kept)
    np.testing.assert_allclose(x, start + y, atol=1e-12)


@pytest.mark.parametrize("steps", [2, 4, 6])
def test_powers_that_are_there_are_not_taken_again(wilson: Any, draw: Any, steps: int) -> None:
    """The same bits, by the products of later runs alone."""
    A, smoother = wilson(mass=0.3), PolynomialSmoother(steps)
    b, x = draw(*A.shape, 3), draw(*A.shape, 3)
    expected, v = x.copy(), np.empty((7, *b.shape), complex)
    smoother.improve(A, b, expected)
    v[0] = b - A.apply(x)
    for k in range(6):
        A.apply(v[k], v[k + 1])
    watched = Mock(wraps=A)
    smoother.improve_by(watched, v, x)
    assert np.array_equal(x, expected) and watched.apply.call_count == sum(smoother.runs[1:])
