"""The benchmark's figures are consistent with each other and with the traffic models of the literature."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stages.lattice.errors import InputError
from workflows import bench


def test_traffic_models():
    """Links 16 x 9, neighbours once or 16 times, one result; 8 bytes a number in single precision."""
    assert bench.traffic_models(16, np.dtype(np.complex64)) == (1152 / 16 + 48, 1152 / 16 + 408)
    assert bench.traffic_models(1, np.dtype(np.complex128)) == (2 * (1152 + 48), 2 * (1152 + 408))


def test_numpy_formulations_are_the_dslash():
    rng = np.random.default_rng(5)
    u, v = rng.normal(size=(7, 3, 3)) + 1j, rng.normal(size=(7, 3, 4)) - 2j
    for product in (bench._by_einsum, bench._by_broadcasting):
        assert np.allclose(product(u, v), u @ v, rtol=1e-14)


def test_figures_are_consistent(monkeypatch):
    monkeypatch.setattr(bench, "MEASURING_SECONDS", 1e-3)
    monkeypatch.setattr(bench, "COPY_BYTES", 1 << 16)
    speed = bench.hisq_dslash_bench((4, 4, 4, 6), 2, "double", "cpu")
    assert json.loads(json.dumps(speed)) == {**speed, "lattice": [4, 4, 4, 6]}
    assert speed["gflops"] == pytest.approx(1146 / speed["nanoseconds"])
    assert speed["perfect_reuse_bandwidth"] == pytest.approx((1152 + 96) / speed["nanoseconds"])
    assert speed["fraction_of_copy"] == pytest.approx(
        speed["perfect_reuse_bandwidth"] / speed["copy_bandwidth"]
    )
    text = bench.table(speed)
    assert "4x4x4x6, 2 rhs, double precision" in text
    assert f"{speed['copy_bandwidth']:.1f} GB/s" in text


def test_refuses_what_it_does_not_know():
    with pytest.raises(InputError, match="precision must be 'single' or 'double', got 'half'"):
        bench.hisq_dslash_bench((4, 4, 4, 4), 2, "half", "cpu")
    with pytest.raises(InputError, match="backend must be 'cpu' or 'cuda', got 'tpu'"):
        bench.hisq_dslash_bench((4, 4, 4, 4), 2, "single", "tpu")
    with pytest.raises(InputError, match="four even numbers"):
        bench.hisq_dslash_bench((4, 4, 5, 4), 2, "single", "cpu")
