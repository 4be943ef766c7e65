"""Projections, combinations and rotations of many bases at once against products in double, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from stages.base.errors import InputError

SHAPES = [(1, 1, 1, 1), (3, 96, 5, 2), (4, 648, 33, 8), (2, 2051, 7, 16), (32, 96, 5, 2)]
"""Systems, rows, vectors, right-hand sides."""


def close(values, expected, tolerance):
    return np.linalg.norm(values - expected) <= tolerance * np.linalg.norm(expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spare", [0, 3])
def test_products_with_bases(backend, random, tolerance, shape, spare):
    systems, rows, k, n = shape
    wide, x, C = random(systems, rows, k + spare), random(systems, rows, n), random(systems, k, n) + 0j
    allocation, V = backend.array(wide), wide[..., :k].astype(complex)
    basis = backend.kernels.batched_basis

    projected = basis.project(allocation[..., :k], backend.array(x))
    expected = np.einsum("srk,srn->skn", V.conj(), x)
    scale = np.linalg.norm(V) * np.linalg.norm(x) / np.sqrt(rows)
    assert projected.dtype == np.complex128 and projected.shape == (systems, k, n)
    assert np.linalg.norm(backend.host(projected) - expected) <= tolerance * scale

    out = backend.array(x)
    basis.add_combination(out, allocation[..., :k], backend.array(C.astype(complex)))
    assert close(backend.host(out), x + np.einsum("srk,skn->srn", V, C), tolerance)

    kept = max(1, k - 2)
    Q = random(systems, k, kept).astype(complex)
    basis.rotate_in_place(allocation[..., :k], backend.array(Q))
    rotated = backend.host(allocation)
    assert close(rotated[..., :kept], np.einsum("srk,skj->srj", V, Q), tolerance)
    assert np.array_equal(rotated[..., k:], wide[..., k:])


def test_blocks_may_be_columns_of_the_same_allocation(backend, random, tolerance):
    wide, C = random(3, 96, 12), random(3, 8, 4).astype(complex)
    allocation, V = backend.array(wide), wide.astype(complex)
    basis = backend.kernels.batched_basis
    projected = backend.host(basis.project(allocation[..., :8], allocation[..., 8:]))
    expected = np.einsum("srk,srn->skn", V[..., :8].conj(), V[..., 8:])
    assert close(projected, expected, 20 * tolerance)
    basis.add_combination(allocation[..., 8:], allocation[..., :8], backend.array(C))
    expected = V[..., 8:] + np.einsum("srk,skn->srn", V[..., :8], C)
    assert close(backend.host(allocation)[..., 8:], expected, tolerance)


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
def test_refusals(backend, random):
    basis, V = backend.kernels.batched_basis, backend.array(random(3, 10, 4))
    with pytest.raises(InputError, match=r"the same systems, rows and dtype"):
        basis.project(V, backend.array(random(2, 10, 4)))
    with pytest.raises(InputError, match=r"have shape \(3, 4, 2\), got \(3, 5, 2\)"):
        basis.add_combination(backend.array(random(3, 10, 2)), V, np.zeros((3, 5, 2), complex))
    with pytest.raises(InputError, match="next to each other"):
        basis.project(V[..., ::2], V)
    with pytest.raises(InputError, match="follow each other"):
        basis.project(V[:, :5], V[:, :5])
