"""Shorter forms of links and fields: long links in 13 reals, everything in 16 bits."""

from __future__ import annotations

import numpy as np
import pytest
from widths import widths

from stages.errors import InputError
from stages.lqcd.kernels.half_field import HalfField, empty, from_half, to_half
from stages.lqcd.kernels.reference import hisq_dslash as reference
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

EXTENTS = [(8, 4, 4, 6), (6, 10, 4, 2), (2, 2, 2, 2)]


def hisq_links(random, lattice):
    """Fat links of any kind; long links a real number of either sign times U(3) matrices."""
    links = random(lattice.half_volume, 16, 3, 3).reshape(-1, 4, 2, 2, 3, 3)
    unitary = np.linalg.qr(random(*links[:, :, 1].shape).astype(complex))[0]
    links[:, :, 1] = -0.043 * np.array([1, -1])[:, None, None] * unitary
    return links.reshape(-1, 16, 3, 3)


def hisq_fields(random, lattice):
    """Fields of fat links of any kind, and of long ones that are a real number times U(3) matrices."""
    fat, unitary = (random(4, 2, lattice.half_volume, 3, 3).astype(complex) for _ in range(2))
    return fat, -0.043 * np.linalg.qr(unitary)[0]


@pytest.mark.parametrize("n", widths((3, 33), (1, 2, 8, 12, 64)))
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_hisq_long_links_in_13_reals(backend, random, dtype, tolerance, extents, n):
    """For few right-hand sides the GPU keeps two rows and a phase of them: the same to rounding."""
    lattice = Lattice(extents)
    fields, x = hisq_fields(random, lattice), random(lattice.half_volume, 3, n)
    kernels = backend.kernels.hisq_dslash
    packed = kernels.pack_fields(*map(backend.array, fields), lattice, ODD, dtype, narrow=True)
    if backend.xp is not np and dtype == np.complex64:
        assert packed.links.nbytes * 144 == lattice.half_volume * 16 * 72 * 124
    out = kernels.hisq_dslash(packed, backend.array(x), backend.array(np.full_like(x, np.nan)))
    exact = reference.pack_fields(*fields, lattice, ODD, np.dtype(complex), False)
    expected = reference.hisq_dslash(exact, x.astype(complex), np.empty(x.shape, complex))
    assert np.abs(backend.host(out) - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
def test_other_long_links_keep_18_reals(backend, random, tolerance):
    lattice = Lattice((4, 4, 4, 6))
    fields = [random(4, 2, lattice.half_volume, 3, 3).astype(complex) for _ in range(2)]
    x = random(lattice.half_volume, 3, 2)
    kernels = backend.kernels.hisq_dslash
    packed = kernels.pack_fields(*map(backend.array, fields), lattice, ODD, x.dtype, narrow=True)
    out = kernels.hisq_dslash(packed, backend.array(x), backend.array(np.full_like(x, np.nan)))
    exact = reference.pack_fields(*fields, lattice, ODD, np.dtype(complex), False)
    expected = reference.hisq_dslash(exact, x.astype(complex), np.empty(x.shape, complex))
    assert np.abs(backend.host(out) - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("dtype", ["complex128"], indirect=True)
@pytest.mark.parametrize("n", widths((3, 33), (1, 2, 8, 12, 16, 64)))
@pytest.mark.parametrize("directions", [16, 8])
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_links_in_their_fields_give_the_same_bits(backend, random, extents, directions, n):
    """What is read where it lies is summed in the same order as what is packed; errors of shape are told."""
    lattice, kernels = Lattice(extents), backend.kernels.hisq_dslash
    fields = [backend.array(field) for field in hisq_fields(random, lattice)]
    if directions == 8:
        fields[1] = None
    x, y = (backend.array(random(lattice.half_volume, 3, n)) for _ in range(2))
    for parity in (EVEN, ODD):
        outs, sums = [], []
        for packed in (
            kernels.in_fields(*fields, lattice, parity),
            kernels.pack_fields(*fields, lattice, parity, complex, narrow=False),
        ):
            outs.append(backend.array(np.full((lattice.half_volume, 3, n), np.nan, complex)))
            sums.append(backend.array(np.zeros(n)))
            kernels.hisq_dslash(packed, x, outs[-1], diagonal=y, a=0.3, b=-1.1, dots=sums[-1])
        assert np.array_equal(*map(backend.host, outs)) and np.array_equal(*map(backend.host, sums))
    with pytest.raises(InputError, match="one_hop"):
        kernels.in_fields(fields[0][:3], fields[1], lattice, EVEN)


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
@pytest.mark.parametrize("n", [1, 6, 8])
def test_conversion_to_16_bits_and_back(backend, random, n):
    """Error at most half a scale, scale at most the largest part / 32767 (1 + 2^-14); all packages agree."""
    field = random(96, 3, n) * np.float32(10.0) ** np.linspace(-30, 30, 96, dtype=np.float32)[:, None, None]
    field[5] = 0
    half = to_half(backend.array(field))
    back = backend.host(from_half(half))
    scales, codes = backend.host(half.scales), backend.host(half.codes)
    largest = np.abs(field.view(np.float32)).reshape(96, 3, n, 2).max(axis=(1, 3))
    assert (scales >= largest / 32767 * (1 - 1e-7)).all() and (scales <= largest / 32767 * (1 + 2**-14)).all()
    error = np.abs((back - field).view(np.float32)).reshape(96, 3, n, 2).max(axis=(1, 3))
    assert (error <= 0.51 * scales).all() and (back[5] == 0).all() and codes.min() >= 1
    expected = to_half(field)
    assert np.array_equal(scales, expected.scales) and np.array_equal(codes, expected.codes)


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
@pytest.mark.parametrize("n", widths((3, 33), (1, 2, 8, 12, 32, 64)))
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_dslash_in_16_bits(backend, random, extents, n):
    """Within a few roundings of 16 bits of the exact result, and to rounding that of the decoded operands."""
    lattice, kernels = Lattice(extents), backend.kernels.hisq_dslash
    links, x = hisq_links(random, lattice), random(lattice.half_volume, 3, n)
    packed, half = kernels.pack(backend.array(links), lattice, EVEN), to_half(backend.array(x))
    into_half = kernels.hisq_dslash(packed, half, empty(backend.xp, lattice.half_volume, n), b=-0.5)
    exact = reference.hisq_dslash(
        reference.pack(links.astype(complex), lattice, EVEN), x.astype(complex), np.empty(x.shape, complex)
    )
    assert error(backend.host(from_half(into_half)), -0.5 * exact) < 1e-4
    diagonal, dots = random(lattice.half_volume, 3, n), backend.array(np.zeros(n))
    out = backend.array(np.full_like(x, np.nan))
    arguments = {"diagonal": backend.array(diagonal), "a": 0.3, "b": -1.1, "dots": dots}
    kernels.hisq_dslash(packed, half, out, **arguments)
    assert error(backend.host(out), 0.3 * diagonal - 1.1 * exact) < 1e-4
    rounded = reference.pack(links, lattice, EVEN)
    expected = reference.hisq_dslash(rounded, to_half(x), 0 * x, diagonal=diagonal, a=0.3, b=-1.1)
    assert error(backend.host(out), expected) < 1e-6
    products = (diagonal.conj() * backend.host(out).astype(complex)).real
    assert np.abs(backend.host(dots) - products.sum(axis=(0, 1))).max() < 1e-6 * np.abs(products).sum()


def error(values, exact):
    return np.linalg.norm(values - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
def test_misuse_of_16_bits(backend, random):
    lattice, kernels = Lattice((4, 4, 4, 4)), backend.kernels.hisq_dslash
    links, x = backend.array(random(128, 16, 3, 3)), backend.array(random(128, 3, 2))
    half, packed = to_half(x), kernels.pack(links, lattice, EVEN)
    double = kernels.pack(links.astype(complex), lattice, EVEN)
    with pytest.raises(InputError, match="needs complex64 links, got complex128"):
        kernels.hisq_dslash(double, half, x.copy())
    with pytest.raises(InputError, match="takes no diagonal"):
        kernels.hisq_dslash(packed, half, to_half(x), diagonal=x)
    with pytest.raises(InputError, match="must not be its input"):
        kernels.hisq_dslash(packed, half, half)
    with pytest.raises(
        InputError, match=r"out.scales must be a C-contiguous float32 array of shape \(128, 2\)"
    ):
        kernels.hisq_dslash(packed, half, HalfField(half.codes.copy(), half.scales[:-1].copy()))
