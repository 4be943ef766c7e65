"""Projections, combinations and rotations of one basis or many against products in double."""

from itertools import product

import numpy as np
import pytest

from stages.base.errors import InputError
from support.matrices import dagger, near
from support.refusals import refuses

SHAPES = [(1, 3, 1, 1), (1, 15, 3, 2), (1, 2100, 33, 5), (1, 6153, 7, 16), (1, 18453, 48, 1)]
BATCHED = [(1, 1, 1, 1), (3, 96, 5, 2), (4, 648, 33, 8), (2, 2051, 7, 16), (32, 96, 5, 2)]
"""Systems, rows, vectors, right-hand sides; `basis` has one system, of sites of three components."""


class Family:
    """`basis` or `batched_basis` on arrays ``[systems, rows, columns]`` of the host."""

    def __init__(self, backend, name):
        self.backend, self.one, self.kernels = backend, name == "basis", getattr(backend.kernels, name)

    def there(self, array):
        return self.backend.array(array[0].reshape(-1, 3, array.shape[-1]) if self.one else array)

    def small(self, array):
        return self.backend.array(array[0] if self.one else array)

    def back(self, array, systems):
        return self.backend.host(array).reshape(systems, -1, array.shape[-1])


@pytest.mark.parametrize(
    ("name", "shape"), [*product(["basis"], SHAPES), *product(["batched_basis"], BATCHED)], ids=str
)
@pytest.mark.parametrize("spare", [0, 3])
def test_products_with_bases(backend, random, tolerance, name, shape, spare):
    systems, rows, k, n = shape
    family = Family(backend, name)
    basis = family.kernels
    wide, x, C = random(systems, rows, k + spare), random(systems, rows, n), random(systems, k, n) + 0j
    allocation, V = family.there(wide), wide[..., :k].astype(complex)

    projected = basis.project(allocation[..., :k], family.there(x))
    assert projected.dtype == np.complex128
    scale = np.linalg.norm(V) * np.linalg.norm(x) / np.sqrt(rows)
    expected = dagger(V) @ x.astype(complex)
    assert np.linalg.norm(family.back(projected, systems) - expected) <= tolerance * scale

    out = family.there(x)
    basis.add_combination(out, allocation[..., :k], family.small(C.astype(complex)))
    assert near(family.back(out, systems), x + V @ C, tolerance)

    kept = max(1, k - 2)
    Q = random(systems, k, kept).astype(complex)
    basis.rotate_in_place(allocation[..., :k], family.small(Q))
    rotated = family.back(allocation, systems)
    assert near(rotated[..., :kept], V @ Q, tolerance)
    assert np.array_equal(rotated[..., k:], wide[..., k:])


@pytest.mark.parametrize(("name", "systems"), [("basis", 1), ("batched_basis", 3)])
def test_blocks_may_be_columns_of_the_same_allocation(backend, random, tolerance, name, systems):
    wide, C = random(systems, 300, 12), random(systems, 8, 4).astype(complex)
    family, V = Family(backend, name), wide.astype(complex)
    basis, allocation = family.kernels, family.there(wide)
    projected = family.back(basis.project(allocation[..., :8], allocation[..., 8:]), systems)
    expected = dagger(V[..., :8]) @ V[..., 8:]
    assert near(projected, expected, 20 * tolerance)
    basis.add_combination(allocation[..., 8:], allocation[..., :8], family.small(C))
    expected = V[..., 8:] + V[..., :8] @ C
    assert near(family.back(allocation, systems)[..., 8:], expected, tolerance)
    if name == "batched_basis":
        projected = basis.project(allocation[..., 3:8], allocation[..., 8:])
        assert near(backend.host(projected), dagger(V[..., 3:8]) @ expected, 20 * tolerance)
        basis.add_combination(allocation[..., 8:], allocation[..., 3:8], family.small(C[:, 3:].copy()))
        expected += V[..., 3:8] @ C[:, 3:]
        assert near(family.back(allocation, systems)[..., 8:], expected, tolerance)


@pytest.mark.parametrize(("k", "spare", "n"), [(9, 0, 4), (9, 3, 16), (130, 0, 16), (64, 1, 1), (6, 0, 65)])
def test_vectors_in_single_beside_a_block_in_double(backend, k, spare, n):
    rng = np.random.default_rng(811)

    def numbers(*shape):
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    wide, x, C = numbers(1030, 3, k + spare).astype(np.complex64), numbers(1030, 3, n), numbers(k, n)
    rows, block, basis = wide[..., :k].reshape(-1, k).astype(complex), x.reshape(-1, n), backend.kernels.basis
    V, out = backend.array(wide)[..., :k], backend.array(x)
    assert near(backend.host(basis.project(V, out)), rows.conj().T @ block, 1e-14)
    basis.add_combination(out, V, backend.array(C))
    assert near(backend.host(out).reshape(-1, n), block + rows @ C, 1e-14)


def test_single_precision_is_summed_in_double(backend):
    """A sum of 100,000 equal terms: single precision alone would be off in the fourth digit."""
    V, x = np.full((33334, 3, 2), 0.1, np.complex64), np.full((33334, 3, 1), 0.1, np.complex64)
    expected = V.size / 2 * float(np.float32(0.1)) ** 2
    result = backend.host(backend.kernels.basis.project(backend.array(V), backend.array(x)))
    assert np.abs(result / expected - 1).max() < 4e-5


def test_refuses_what_would_need_a_copy(backend, random):
    basis, V = backend.kernels.basis, backend.array(random(40, 3, 6))
    refuses("leading columns", basis.project, V[..., ::2], backend.array(random(40, 3, 1)))
    refuses("leading columns", basis.project, V[:, :2], backend.array(random(40, 2, 1)))
    refuses("same sites", basis.project, V, backend.array(random(41, 3, 1)))
    refuses(r"\(6, at most 6\)", basis.rotate_in_place, V, backend.array(random(6, 7)))
    with pytest.raises(InputError, match=r"\(6, 2\)"):
        basis.add_combination(backend.array(random(40, 3, 2)), V, backend.array(random(6, 3)))


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
def test_refusals_of_many_bases(backend, random):
    basis, V = backend.kernels.batched_basis, backend.array(random(3, 10, 4))
    refuses(r"the same systems, rows and dtype", basis.project, V, backend.array(random(2, 10, 4)))
    with pytest.raises(InputError, match=r"have shape \(3, 4, 2\), got \(3, 5, 2\)"):
        basis.add_combination(backend.array(random(3, 10, 2)), V, np.zeros((3, 5, 2), complex))
    refuses("next to each other", basis.project, V[..., ::2], V)
    refuses("follow each other", basis.project, V[:, :5], V[:, :5])
