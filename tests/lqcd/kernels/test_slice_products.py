"""Products on time slices against explicit sums in double."""

import tracemalloc
from importlib import import_module

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from stages.base.errors import InputError
from stages.lqcd.kernels.reference import slice_products as reference
from support.refusals import refuses

SHAPES = [(1, 4, 1, 1), (2, 6, 5, 3), (3, 300, 7, 2), (1, 1100, 2, 1), (2, 32, 33, 16)]
"""Slices, sites of a slice and parity, vectors, right-hand sides."""


def explicit(vectors, solutions, first):
    times, _, sites, _, _ = vectors.shape
    slices = solutions.reshape(2, -1, sites, 4, 3, solutions.shape[-1])[:, first : first + times]
    wide, spinors = vectors.astype(complex), slices.astype(complex)
    return np.einsum("tpxci,ptxscj->tsij", wide.conj(), spinors, optimize=True)


def norm(*arrays):
    return np.prod([np.linalg.norm(array) for array in arrays])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("before", [0, 2])
def test_sink_projection(backend, random, tolerance, shape, before):
    times, sites, k, n = shape
    vectors, solutions = random(times, 2, sites, 3, k), random(2, (times + before) * sites, 12, n)
    out = backend.array(np.full((times, 4, k, n), np.nan, complex))
    kernel = backend.kernels.slice_products.sink_projection
    assert kernel(backend.array(vectors), backend.array(solutions), out, before) is out
    expected = explicit(vectors, solutions, before)
    terms = 6 * sites
    scale = np.sqrt(terms) * norm(vectors, solutions) / np.sqrt(vectors.size * solutions.size)
    assert np.abs(backend.host(out) - expected).max() <= 5 * tolerance * scale


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_slice_gram(backend, random, tolerance, shape):
    times, sites, k, n = shape
    left, right = random(times, 2, sites, 3, k), random(times, 2, sites, 3, n)
    out = backend.array(np.full((times, k, n), np.nan, complex))
    kernel = backend.kernels.slice_products.slice_gram
    assert kernel(backend.array(left), backend.array(right), out) is out
    expected = np.einsum("tpxci,tpxcj->tij", left.conj().astype(complex), right.astype(complex))
    scale = np.sqrt(6 * sites) * norm(left, right) / np.sqrt(left.size * right.size)
    assert np.abs(backend.host(out) - expected).max() <= 5 * tolerance * scale


def test_single_precision_is_summed_in_double(backend):
    """Sums of 120,000 equal terms, which single precision alone gets wrong in the fourth digit."""
    sites, value = 20000, np.float32(0.1)
    vectors, solutions = np.full((1, 2, sites, 3, 2), value, np.complex64), np.full((2, sites, 12, 2), value)
    out, gram = backend.array(np.empty((1, 4, 2, 2), complex)), backend.array(np.empty((1, 2, 2), complex))
    arrays = backend.array(vectors), backend.array(solutions.astype(np.complex64))
    backend.kernels.slice_products.sink_projection(*arrays, out)
    backend.kernels.slice_products.slice_gram(arrays[0], arrays[0], gram)
    expected = 6 * sites * float(value) ** 2
    for result in (out, gram):
        assert np.abs(backend.host(result) / expected - 1).max() < 2e-5


def test_workspace_is_what_is_announced(random, dtype):
    """Of the kernels of the host, which allocate through NumPy."""
    for package in ("cpu", "reference"):
        kernels = import_module(f"stages.lqcd.kernels.{package}.slice_products")
        for times, sites, k, n in [(2, 600, 5, 3), (2, 40, 64, 32), (3, 700, 3, 16)]:
            vectors, solutions = random(times, 2, sites, 3, k), random(2, times * sites, 12, n)
            wide, out = random(times, 2, sites, 3, 4 * n), np.empty((times, 4, k, n), complex)
            gram = np.empty((times, k, 4 * n), complex)
            announced = kernels.workspace_bytes(vectors.shape, 4 * n, dtype)
            kernels.sink_projection(vectors, solutions, out)  # what a process loads once is no workspace
            kernels.slice_gram(vectors, wide, gram)
            tracemalloc.start()
            kernels.sink_projection(vectors, solutions, out)
            kernels.slice_gram(vectors, wide, gram)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert 0.2 * announced < peak < announced + 300_000  # NumPy's own buffers of casts


@pytest.fixture
def shapes():
    pytest.importorskip("cupy", reason="the runs of rows live with the CUDA kernels")
    return import_module("stages.lqcd.kernels.cuda.slice_products")


def products_of_runs(left, right, runs):
    """What cuBLAS computes from these offsets and strides, as NumPy does on views."""
    item, slices, count, groups = left.itemsize, *runs.left.shape
    result = np.zeros((slices, groups, runs.left_columns, runs.right_columns), complex)
    for t, r, g in np.ndindex(slices, count, groups):
        views = []
        for array, offsets, stride, columns in (
            (left, runs.left, runs.left_stride, runs.left_columns),
            (right, runs.right, runs.right_stride, runs.right_columns),
        ):
            start = int(offsets[t, r, g])
            assert start + (runs.rows - 1) * stride + columns <= array.size
            flat = array.reshape(-1)[start:]
            views.append(as_strided(flat, (runs.rows, columns), (stride * item, item)))
        result[t, g] += views[0].conj().T @ views[1]
    return result


@pytest.mark.nvrtc
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_runs_of_the_device_are_those_of_the_sum(shapes, random, dtype, tolerance, shape):
    times, sites, k, n = shape
    vectors, solutions = random(times, 2, sites, 3, k), random(2, (times + 1) * sites, 12, n)
    runs = shapes.sink_runs(vectors.shape, (times + 1) * sites, n, 1, dtype)
    expected = explicit(vectors, solutions, 1)
    assert np.allclose(products_of_runs(vectors, solutions, runs), expected, atol=1e3 * tolerance)
    right, out = random(times, 2, sites, 3, n), np.empty((times, k, n), complex)
    runs = shapes.gram_runs(vectors.shape, n, dtype)
    expected = reference.slice_gram(vectors, right, out)
    assert np.allclose(products_of_runs(vectors, right, runs)[:, 0], expected, atol=1e3 * tolerance)


@pytest.mark.nvrtc
@pytest.mark.parametrize(("shape", "n"), [((3, 2, 6912, 3, 64), 32), ((2, 2, 55296, 3, 999), 61)])
def test_chunks_of_runs_cover_all_and_stay_within_the_workspace(shapes, dtype, shape, n):
    runs = shapes.sink_runs(shape, shape[0] * shape[2], n, 0, dtype)
    assert runs.rows <= 4096 and runs.left.size * runs.rows == 4 * 3 * 2 * shape[0] * shape[2]
    taken = np.zeros(runs.left.shape[:2], int)
    for chunk in runs.chunks(dtype):
        taken[chunk] += 1
        assert taken[chunk].size * runs.product_bytes(dtype) <= max(
            shapes.PARTIAL_BYTES, runs.product_bytes(dtype)
        )
    assert (taken == 1).all()


@pytest.mark.nvrtc
def test_run_lengths_divide_the_sites_of_real_slices(shapes):
    single, double = np.dtype(np.complex64), np.dtype(np.complex128)
    assert [shapes.run_rows(extent**3 // 2, single) for extent in (2, 16, 24, 32, 48)] == [
        *(4, 1024, 864, 1024, 1024)
    ]
    assert [shapes.run_rows(extent**3 // 2, double) for extent in (24, 32)] == [3456, 4096]


def test_refuses_what_does_not_fit(backend, random, dtype):
    kernels = backend.kernels.slice_products
    vectors, solutions = backend.array(random(2, 2, 8, 3, 4)), backend.array(random(2, 24, 12, 3))
    out = backend.array(np.empty((2, 4, 4, 3), complex))
    with pytest.raises(InputError, match="2 slices of vectors from slice 2 on are not among the 3"):
        kernels.sink_projection(vectors, solutions, out, 2)
    with pytest.raises(InputError, match="a multiple of 8 sites"):
        kernels.sink_projection(vectors, backend.array(random(2, 20, 12, 3)), out)
    with pytest.raises(InputError, match="solutions must be a C-contiguous"):
        kernels.sink_projection(vectors, backend.array(random(2, 24, 11, 3)), out)
    refuses("solutions must have shape", kernels.sink_projection, vectors, solutions[..., :0], out)
    refuses(r"\(time, 2, site, 3, column\)", kernels.sink_projection, vectors[:, 0], solutions, out)
    with pytest.raises(
        InputError, match=r"out must be a C-contiguous complex128 array of shape \(2, 4, 4, 3"
    ):
        kernels.sink_projection(vectors, solutions, out[..., :2])
    refuses("right must be", kernels.slice_gram, vectors, backend.array(random(2, 2, 9, 3, 4)), out)
