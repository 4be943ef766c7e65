"""Projections, combinations and rotations of a basis against plain matrix products in double."""

from __future__ import annotations

import numpy as np
import pytest

from stages.base.errors import InputError

SHAPES = [(1, 1, 1), (5, 3, 2), (700, 33, 5), (2051, 7, 16), (6151, 48, 1)]
"""Sites of three components, vectors, right-hand sides."""


def close(values, expected, tolerance):
    return np.linalg.norm(values - expected) <= tolerance * np.linalg.norm(expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spare", [0, 3])
def test_products_with_a_basis(backend, random, tolerance, shape, spare):
    sites, k, n = shape
    wide, x, C = random(sites, 3, k + spare), random(sites, 3, n), random(k, n).astype(complex)
    V, rows = backend.array(wide)[..., :k], wide[..., :k].reshape(-1, k).astype(complex)
    block = x.reshape(-1, n).astype(complex)
    basis = backend.kernels.basis

    projected = basis.project(V, backend.array(x))
    assert projected.dtype == np.complex128
    scale = np.linalg.norm(rows) * np.linalg.norm(block) / np.sqrt(len(rows))
    assert np.linalg.norm(backend.host(projected) - rows.conj().T @ block) <= tolerance * scale

    out = backend.array(x)
    basis.add_combination(out, V, backend.array(C))
    assert close(backend.host(out).reshape(-1, n), block + rows @ C, tolerance)

    kept = max(1, k - 2)
    Q, allocation = random(k, kept).astype(complex), backend.array(wide)
    basis.rotate_in_place(allocation[..., :k], backend.array(Q))
    rotated = backend.host(allocation)
    assert close(rotated[..., :kept].reshape(-1, kept), rows @ Q, tolerance)
    assert np.array_equal(rotated[..., k:], wide[..., k:])


def test_blocks_may_be_columns_of_the_same_allocation(backend, random, tolerance):
    wide, C = random(300, 3, 12), random(8, 4).astype(complex)
    rows, allocation = wide.reshape(-1, 12).astype(complex), backend.array(wide)
    basis = backend.kernels.basis
    projected = backend.host(basis.project(allocation[..., :8], allocation[..., 8:]))
    scale = np.linalg.norm(rows)
    assert close(projected, rows[:, :8].conj().T @ rows[:, 8:], tolerance * scale)
    basis.add_combination(allocation[..., 8:], allocation[..., :8], backend.array(C))
    expected = rows[:, 8:] + rows[:, :8] @ C
    assert close(backend.host(allocation)[..., 8:].reshape(-1, 4), expected, tolerance)


def test_vectors_in_single_beside_a_block_in_double(backend):
    rng = np.random.default_rng(811)
    V = (rng.normal(size=(3000, 3, 9)) + 1j * rng.normal(size=(3000, 3, 9))).astype(np.complex64)
    x = rng.normal(size=(3000, 3, 4)) + 1j * rng.normal(size=(3000, 3, 4))
    C = rng.normal(size=(9, 4)) + 0j
    rows, block, basis = V.reshape(-1, 9).astype(complex), x.reshape(-1, 4), backend.kernels.basis
    projected = backend.host(basis.project(backend.array(V), backend.array(x)))
    assert close(projected, rows.conj().T @ block, 1e-14)
    out = backend.array(x)
    basis.add_combination(out, backend.array(V), backend.array(C))
    assert close(backend.host(out).reshape(-1, 4), block + rows @ C, 1e-14)


def test_single_precision_is_summed_in_double(backend):
    """A sum of 100,000 equal terms: single precision alone would be off in the fourth digit."""
    V, x = np.full((33334, 3, 2), 0.1, np.complex64), np.full((33334, 3, 1), 0.1, np.complex64)
    expected = V.size / 2 * float(np.float32(0.1)) ** 2
    result = backend.host(backend.kernels.basis.project(backend.array(V), backend.array(x)))
    assert np.abs(result / expected - 1).max() < 4e-5


def test_refuses_what_would_need_a_copy(backend, random):
    basis, V = backend.kernels.basis, backend.array(random(40, 3, 6))
    with pytest.raises(InputError, match="leading columns"):
        basis.project(V[..., ::2], backend.array(random(40, 3, 1)))
    with pytest.raises(InputError, match="leading columns"):
        basis.project(V[:, :2], backend.array(random(40, 2, 1)))
    with pytest.raises(InputError, match="same sites"):
        basis.project(V, backend.array(random(41, 3, 1)))
    with pytest.raises(InputError, match=r"\(6, at most 6\)"):
        basis.rotate_in_place(V, backend.array(random(6, 7)))
    with pytest.raises(InputError, match=r"\(6, 2\)"):
        basis.add_combination(backend.array(random(40, 3, 2)), V, backend.array(random(6, 3)))
