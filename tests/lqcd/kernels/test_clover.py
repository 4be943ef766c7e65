"""Products with clover matrices against numpy.linalg's view of them, and their misuse."""

from __future__ import annotations

import numpy as np
import pytest
from widths import widths

from stages.errors import InputError

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


def test_a_matrix_and_its_inverse_undo_each_other(backend, random, tolerance):
    blocks = (hermitian(random) / 10 + 2 * np.eye(6)).astype(random(1).dtype)
    x = random(SITES, 12, 3)
    out = backend.array(x)
    for matrices in (blocks, np.linalg.inv(blocks)):
        packed = backend.kernels.clover.pack(backend.array(matrices))
        backend.kernels.clover.multiply(packed, out, out)
    assert np.abs(backend.host(out) - x).max() <= 20 * tolerance


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
    with pytest.raises(InputError, match=message):
        backend.kernels.clover.multiply(packed, change(x), x)


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
def test_refuses_wrong_matrices(backend, random):
    pack = backend.kernels.clover.pack
    with pytest.raises(InputError, match=r"shape \(37, 2, 6, 6\)"):
        pack(backend.array(random(SITES, 12, 12)))
    with pytest.raises(InputError, match="complex64 or complex128, got float32"):
        pack(backend.array(random(SITES, 2, 6, 6).real.copy()))
