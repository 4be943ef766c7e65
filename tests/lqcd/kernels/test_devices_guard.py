"""Calls of CuPy's on spread arrays are refused or listed: on addresses of no memory, without a device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy
import devices_guard as guard

from stages.lqcd.kernels.cuda.devices import spans
from stages.lqcd.kernels.cuda.devices.partition import PAGE, Run
from stages.lqcd.kernels.cuda.devices.spans import Span, SpanPool

pytestmark = pytest.mark.nvrtc

SHAPE = (512, 512)


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A complex128 array whose pages would lie on two devices."""

    def mapped(runs: tuple[Run, ...], devices: tuple[int, ...]) -> Span:
        return Span(1 << 40, runs, ())

    monkeypatch.setattr(spans, "map_pages", mapped)
    _, pointer = SpanPool((0, 1)).take(((0, 1), (1, 1)))
    return cupy.ndarray(SHAPE, complex, pointer)


CALLS: dict[str, Callable[[Any], Any]] = {
    "ndarray.__mul__": lambda x: x * 2,
    "ndarray.__rmul__": lambda x: 2 * x,
    "ndarray.__isub__": lambda x: x.__isub__(1),
    "ndarray.__matmul__": lambda x: x @ x,
    "ndarray.__setitem__": lambda x: x.__setitem__(Ellipsis, 0),
    "ndarray.__getitem__": lambda x: x[np.array([1, 2])],
    "ndarray.__abs__": abs,
    "ndarray.astype": lambda x: x.astype(np.complex64),
    "ndarray.copy": lambda x: x[::2].copy(),
    "ndarray.conj": lambda x: x.conj(),
    "ndarray.fill": lambda x: x.fill(0),
    "ndarray.get": lambda x: x.get(),
    "ndarray.sum": lambda x: x.sum(axis=1),
    "cupy.add": lambda x: cupy.add(x, 1, out=x),
    "cupy.concatenate": lambda x: cupy.concatenate([x, x]),
    "cupy.copyto": lambda x: cupy.copyto(x, 1),
    "cupy.einsum": lambda x: cupy.einsum("ab,cb->ac", x, x),
    "cupy.linalg.cholesky": lambda x: cupy.linalg.cholesky(x),
    "cupy.matmul": lambda x: cupy.matmul(x, x),
    "cupy.tensordot": lambda x: cupy.tensordot(x, x),
    "cupy.where": lambda x: cupy.where(True, x, x),
    "cupy.zeros_like": lambda x: cupy.zeros_like(x),
    "cupy.twice": lambda x: cupy.ElementwiseKernel("T x", "T y", "y = 2 * x", "twice")(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_refused_by_name(spread: Any, name: str) -> None:
    with guard.refused(), pytest.raises(guard.SpreadArrayError, match=rf"^{name} of complex128\[\d+, 512\]"):
        CALLS[name](spread)


def test_views_and_small_arrays_are_free(spread: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.ndarray, "__setitem__", lambda array, key, value: None, raising=False)
    with guard.refused():
        views = (spread.T, spread.reshape(-1), spread.real, spread[1:, ::2], spread.view(np.float64))
        assert all(spans.span_of(view) is not None for view in views)
        assert cupy.ascontiguousarray(spread) is spread
        spread[3, 4] = 1
        assert not guard.is_large(spread[:, 0]) and not guard.is_large(spread[:64])
    assert spread.nbytes >= PAGE


def test_calls_are_listed_with_their_place_and_bytes(spread: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.ndarray, "__add__", lambda x, y: x, raising=False)
    monkeypatch.setattr(cupy.ndarray, "conj", lambda x: x, raising=False)
    with guard.listed() as calls:
        for _ in range(3):
            spread + spread
        spread.conj()
    assert sorted(calls.counts.values()) == [1, 3]
    sums, conjugate = calls.table().splitlines()[1:]
    assert "25.2 MB       3 x  ndarray.__add__ of complex128[512, 512], complex128[512, 512]" in sums
    assert "4.2 MB       1 x  ndarray.conj of complex128[512, 512] at test_devices_guard.py:" in conjugate


def test_nothing_stays_of_it(spread: Any) -> None:
    before = dict(vars(cupy.ndarray)), dict(vars(cupy))
    with guard.refused():
        pass
    assert (dict(vars(cupy.ndarray)), dict(vars(cupy))) == before
    assert not hasattr(spread, "__cupy_override_elementwise_kernel__")
