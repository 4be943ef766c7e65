"""Products with clover matrices against numpy.linalg's view of them, and their misuse."""

import numpy as np
import pytest
from widths import widths

from stages.lqcd.kernels import expressions
from support.refusals import refuses

SITES = 37


def hermitian(random, sites=SITES):
    blocks = random(sites, 2, 6, 6)
    return blocks + blocks.conj().swapaxes(-1, -2)


@pytest.mark.parametrize("n", widths((3, 17), (1, 2, 16)))
def test_multiplies_each_chirality_of_each_site(backend, random, tolerance, n):
    blocks, x = hermitian(random), random(SITES, 12, n)
    expected = np.stack(
        [
            np.concatenate([blocks[s, c].astype(complex) @ x[s, 6 * c : 6 * c + 6] for c in (0, 1)])
            for s in range(SITES)
        ]
    )
    packed = backend.kernels.clover.pack(backend.array(blocks))
    given, out = backend.array(x), backend.array(np.full_like(x, np.nan))
    assert backend.kernels.clover.multiply(packed, given, out) is out
    assert np.abs(backend.host(out) - expected).max() <= tolerance * np.abs(expected).max()
    backend.kernels.clover.multiply(packed, given, given)
    assert np.array_equal(backend.host(given), backend.host(out))


def test_a_matrix_and_its_inverse_undo_each_other(backend, random, tolerance, monkeypatch):
    """Constant + C and its inverse, which is made in parts of the field."""
    monkeypatch.setattr(expressions, "SLAB", 16)
    kernels, blocks, x = backend.kernels.clover, hermitian(random) / 10, random(SITES, 12, 3)
    packed, out = kernels.pack(backend.array(blocks), 2.0), backend.array(x)
    kernels.multiply(packed, out, out)
    expected = blocks @ x.reshape(SITES, 2, 6, 3)
    assert np.abs(backend.host(out) - expected.reshape(x.shape) - 2 * x).max() <= 20 * tolerance
    kernels.multiply(kernels.inverse(packed), out, out)
    assert np.abs(backend.host(out) - x).max() <= 20 * tolerance


def test_precisions_and_singular_matrices(backend, random, dtype):
    kernels, blocks, x = backend.kernels.clover, hermitian(random), random(SITES, 12, 3)
    other = np.dtype(np.complex64 if dtype == np.complex128 else np.complex128)
    packed = kernels.astype(kernels.pack(backend.array(blocks), 0.25), other)
    assert packed.dtype == other
    given = backend.array(x.astype(other))
    found = backend.host(kernels.multiply(packed, given, backend.xp.empty_like(given)))
    expected = (blocks.astype(complex) + 0.25 * np.eye(6)) @ x.astype(complex).reshape(SITES, 2, 6, 3)
    assert np.abs(found.reshape(expected.shape) - expected).max() <= 3e-6 * np.abs(expected).max()
    blocks[5, 1] = 0
    refuses("clover matrix is singular", kernels.inverse, kernels.pack(backend.array(blocks)))


@pytest.mark.parametrize("n", widths((3,), (1, 16, 17)))
def test_twisted_matrices(backend, random, tolerance, n):
    """C + i mu gamma5, (C - i mu gamma5) / (C^2 + mu^2), and the adjoints, which are those of -mu."""
    kernels, blocks, x, mu = backend.kernels.clover, hermitian(random), random(SITES, 12, n), 0.8
    wide, one = blocks.astype(complex), np.eye(6)
    packed = kernels.pack(backend.array(blocks))
    for inverted in (False, True):
        made = kernels.twisted(packed, mu, inverted)
        for sign, given in (
            (1, made),
            (-1, kernels.adjoint(made)),
            (1, kernels.adjoint(kernels.adjoint(made))),
        ):
            twist = 1j * sign * mu * np.array([1, -1])[:, None, None] * one
            matrix = (wide - twist) @ np.linalg.inv(wide @ wide + mu**2 * one) if inverted else wide + twist
            expected = (matrix @ x.astype(complex).reshape(SITES, 2, 6, n)).reshape(x.shape)
            field = backend.array(x)
            kernels.multiply(given, field, field)
            assert np.abs(backend.host(field) - expected).max() <= 50 * tolerance * np.abs(expected).max()


MISUSE = {
    "dtype": (lambda x: x.astype("complex128"), "x must be a C-contiguous complex64 array"),
    "sites": (lambda x: x[:-1].copy(), r"shape \(37, 12, 2\), got complex64 \(36, 12, 2\)"),
    "one chirality": (lambda x: x[:, :6].copy(), r"shape \(37, 12, 2\)"),
    "dimensions": (lambda x: x[:, :, 0].copy(), "x must have shape"),
}


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
@pytest.mark.parametrize("case", MISUSE)
def test_refuses_a_wrong_field(backend, random, case):
    packed = backend.kernels.clover.pack(backend.array(hermitian(random)))
    x = backend.array(random(SITES, 12, 2))
    change, message = MISUSE[case]
    refuses(message, backend.kernels.clover.multiply, packed, change(x), x)


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
def test_refuses_wrong_matrices(backend, random):
    pack = backend.kernels.clover.pack
    refuses(r"shape \(37, 2, 6, 6\)", pack, backend.array(random(SITES, 12, 12)))
    refuses("complex64 or complex128, got float32", pack, backend.array(random(SITES, 2, 6, 6).real.copy()))
