"""Element by element: kernels against NumPy, bit for bit, and what the compiler makes of them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy

from stages.lqcd.kernels import block_blas, lane_blas, random_numbers, smearing
from stages.lqcd.kernels.cuda import arithmetic, fields
from stages.lqcd.kernels.cuda import random_numbers as random_numbers_cuda
from stages.lqcd.kernels.cuda.devices import own_rows
from stages.lqcd.kernels.cuda.devices.partition import PAGE
from stages.lqcd.kernels.cuda.devices.spans import Span
from stages.lqcd.kernels.cuda.fields import runs_of_bytes
from stages.lqcd.kernels.fields import assign, contiguous, converted
from stages.lqcd.kernels.short_numbers import ShortField, take
from support.nvrtc_compiler import compile_elementwise

pytestmark = pytest.mark.nvrtc


def test_bytes_of_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    span = Span(1 << 40, ((0, 1), (1, 2), (0, 1)), ())
    monkeypatch.setattr(fields, "current_group", lambda: SimpleNamespace(ids=(2, 5)))
    monkeypatch.setattr(fields, "span_of", lambda array: span)
    memory = cupy.cuda.UnownedMemory(span.address, span.size, span, 0)
    array = cupy.ndarray((3 * PAGE,), np.uint8, cupy.cuda.MemoryPointer(memory, PAGE // 2))
    half = PAGE // 2
    assert runs_of_bytes(array) == [
        (2, range(half)),
        (5, range(half, half + 2 * PAGE)),
        (2, range(half + 2 * PAGE, 3 * PAGE)),
    ]


def random(*shape: int, dtype: Any = complex, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


PAIRS = [(one, two) for one in (np.complex64, np.complex128) for two in (np.complex64, np.complex128)]


@pytest.mark.gpu
@pytest.mark.parametrize("sites", [1, 3, 1000])
@pytest.mark.parametrize("n", [1, 3, 8, 300])
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_copies_of_columns_in_any_precision(sites: int, n: int, one: Any, two: Any) -> None:
    x, y = random(2, sites, 3, n + 3, dtype=one), random(2, sites, 3, n + 5, dtype=two)
    there, target = cupy.asarray(x), cupy.asarray(y)
    assign(target[..., 2 : n + 2], there[..., 1 : n + 1])
    y[..., 2 : n + 2] = x[..., 1 : n + 1]
    np.testing.assert_array_equal(target.get(), y)
    assign(target[1, ..., :n], 0)
    y[1, ..., :n] = 0
    np.testing.assert_array_equal(target.get(), y)
    np.testing.assert_array_equal(contiguous(there[..., :n]).get(), x[..., :n])
    np.testing.assert_array_equal(converted(there, two).get(), x.astype(two))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32])
def test_copies_of_other_numbers(dtype: Any) -> None:
    x = np.random.default_rng(2).integers(0, 100, (7, 33, 5)).astype(dtype)
    target = cupy.zeros((7, 33, 6), dtype)
    assign(target[..., 1:], cupy.asarray(x))
    np.testing.assert_array_equal(target[..., 1:].get(), x)
    assert not target[..., 0].any()
    assign(target, cupy.asarray(x[..., :1] + np.zeros(6, dtype)))
    np.testing.assert_array_equal(target.get(), x[..., :1] + np.zeros(6, dtype))


@pytest.mark.gpu
def test_real_numbers_become_complex_ones() -> None:
    x, target = np.random.default_rng(4).normal(size=(50, 3, 2)), cupy.zeros((50, 3, 2), complex)
    assign(target, cupy.asarray(x))
    block_blas.add(target, cupy.asarray(x))
    np.testing.assert_array_equal(target.get(), 2 * x)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 5, 16])
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_arithmetic_has_the_bits_of_array_expressions(n: int, one: Any, two: Any) -> None:
    x, y = random(500, 3, n, dtype=one), random(500, 3, n, dtype=two, seed=4)
    z = random(500, 3, n, dtype=one, seed=5)
    factor = np.random.default_rng(6).normal(size=n)
    there = [cupy.asarray(each) for each in (x, y, z)]
    block_blas.add(there[1], there[0])
    y += x
    lane_blas.lane_add(there[1], there[0], cupy.asarray(factor))
    y += x * factor
    lane_blas.lane_put_add(there[1], there[0][..., :1], [n - 1], cupy.asarray(factor[:1]))
    y[..., [n - 1]] += x[..., :1] * factor[:1]
    lane_blas.lane_put_add(there[1], there[0][..., :1], [n - 1])
    y[..., [n - 1]] += x[..., :1]
    np.testing.assert_array_equal(there[1].get(), y)
    block_blas.scale(there[0], 0.3, there[0])
    np.multiply(x, 0.3, out=x)
    block_blas.affine(there[0], -1.7, there[2], 0.2)
    x *= -1.7
    x += 0.2 * z
    smearing.weighted_sum(0.7, there[0], 0.9, there[2], there[2])
    z = (0.7 * x + 0.9 * z).astype(one)
    block_blas.difference(there[0], there[2], there[0])
    x -= z
    for numbers in (factor, factor.astype(x.real.dtype)):
        lane_blas.lane_scale(there[0], cupy.asarray(numbers), there[0])
        np.multiply(x, numbers, out=x, casting="same_kind")
    np.testing.assert_array_equal(there[0].get(), x)
    lane_blas.lane_divide(there[0], cupy.asarray(factor), there[0])
    np.testing.assert_allclose(there[0].get(), x / factor, rtol=1e-6 if one == np.complex64 else 1e-15)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_columns(dtype: Any) -> None:
    x, lanes = random(400, 3, 9, dtype=dtype), np.array([7, 0, 3])
    there = cupy.asarray(x)
    np.testing.assert_array_equal(lane_blas.lane_take(there, lanes).get(), x[..., lanes])
    np.testing.assert_array_equal(lane_blas.lane_take(there[0, 0], lanes).get(), x[0, 0, lanes])
    lane_blas.lane_clear(there, lanes)
    lane_blas.lane_clear(there, lanes[:0])
    x[..., lanes] = 0
    np.testing.assert_array_equal(there.get(), x)
    y, chosen = random(400, 3, 9, dtype=dtype, seed=8), np.arange(9) % 2 == 0
    lane_blas.lane_choose(there, cupy.asarray(y), chosen)
    np.testing.assert_array_equal(there.get(), np.where(chosen, y, x))
    words = np.random.default_rng(1).integers(0, 2**32, (400, 9, 4), dtype=np.uint32)
    short = take(ShortField(cupy.asarray(words), 16), lanes)
    np.testing.assert_array_equal(short.words.get(), words[:, lanes])


@pytest.mark.gpu
@pytest.mark.parametrize("sites", [1, 2, 300])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_dilution_and_probing(dtype: Any, sites: int) -> None:
    """Also where colours are more than sites, each of which is a segment then."""
    rng = np.random.default_rng(12)
    eta, member = random(sites, 3, 4, dtype=dtype), rng.integers(0, 5, (sites, 3)).astype(np.int32)
    vectors, subsets, signs = (
        rng.integers(0, 4, 10),
        rng.integers(0, 5, 10),
        rng.choice([-1.0, 1.0], (sites, 6)),
    )
    found = random_numbers.masked(cupy.asarray(eta), member, vectors, subsets)
    np.testing.assert_array_equal(found.get(), random_numbers.masked(eta, member, vectors, subsets))
    found = random_numbers.signed(cupy.asarray(eta), signs)
    np.testing.assert_array_equal(found.get(), random_numbers.signed(eta, signs))


DOUBLE = {"T": "c16", "X": "c16", "Y": "c16"}
KERNELS = [each for each in vars(arithmetic).values() if isinstance(each, cupy.ElementwiseKernel)]
SCALARS = "number", "a", "b", "columns", "width"


@pytest.mark.parametrize(
    ("kernel", "types"),
    [
        *((each, DOUBLE) for each in (*KERNELS, random_numbers_cuda.MASKED)),
        *((each, {"X": "c8", "Y": "c16"}) for each in (fields.COPY, arithmetic.LANE_ADD)),
        (fields.COPY, {"X": "c16", "Y": "c8"}),
        (random_numbers_cuda.SIGNED, {"T": "c16"}),
        (own_rows.OWN_COPY, {"T": "f8"}),
    ],
    ids=lambda each: each.name if isinstance(each, cupy.ElementwiseKernel) else "-".join(each.values()),
)
def test_kernels_compile_and_contract_nothing(kernel: cupy.ElementwiseKernel, types: dict[str, str]) -> None:
    letters = {each.ctype for each in kernel.params}
    chosen = {name: kind for name, kind in {**types, "F": "f8"}.items() if name in letters}
    ptx = compile_elementwise(kernel, chosen, "sm_90", SCALARS)
    assert ("fma.rn.f" not in ptx and "st.global.v2" in ptx) or kernel is own_rows.OWN_COPY
