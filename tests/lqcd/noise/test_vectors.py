"""Noise vectors: golden bits, independence of layout and chunk, moments, and refusals."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.kernels.random_numbers import philox4x32, philox_key, roots_of_unity
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise.vectors import noise_vectors

LATTICE = Lattice((6, 4, 2, 10))
KINDS = ("z2", "z4", "u1", "gaussian")
GOLDEN = {
    "z2": "c2bcbf414d5e9bf8",
    "z4": "41a0c3a0e1c89256",
    "u1": "2c576e0825d7f9e6",
}


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("kind", GOLDEN)
def test_golden_bits(kind):
    noise = noise_vectors(LATTICE, ODD, "l2464f211b600m0102m0509m635a.102", 20261121, (0, 3, 4096), kind)
    assert digest(noise) == GOLDEN[kind]


def test_components_are_the_words_of_their_documented_counter():
    x, y, z, t = 4, 1, 1, 7
    site = ((t * 2 + z) * 4 + y) * 6 + x
    counter = tuple(np.array([word], np.uint64) for word in (site, 0, 0, 12))
    words = [int(word[0]) for word in philox4x32(counter, philox_key(77, "a.5"))][:3]
    noise = noise_vectors(LATTICE, ODD, "a.5", 77, (11, 12), "u1")
    position = LATTICE.site(np.array([x, y, z, t]))
    assert np.array_equal(noise[position, :, 1], [roots_of_unity()[word >> 16] for word in words])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_chunk_does_not_alter_bits(kind, parity):
    whole = noise_vectors(LATTICE, parity, "b.7", 5, range(3, 9), kind)
    pieces = [noise_vectors(LATTICE, parity, "b.7", 5, part, kind) for part in ((3,), (4, 5), (6, 7, 8))]
    assert np.array_equal(whole, np.concatenate(pieces, axis=2))


@pytest.mark.parametrize("kind", KINDS)
def test_other_seed_label_index_parity_or_colour_gives_other_noise(kind):
    base = noise_vectors(LATTICE, EVEN, "b.7", 5, (2,), kind)
    others = [
        noise_vectors(LATTICE, EVEN, "b.7", 6, (2,), kind),
        noise_vectors(LATTICE, EVEN, "b.8", 5, (2,), kind),
        noise_vectors(LATTICE, EVEN, "b.7", 5, (3,), kind),
        noise_vectors(LATTICE, ODD, "b.7", 5, (2,), kind),
        np.roll(base, 1, axis=1),
    ]
    size = base.size
    for other in others:
        overlap = abs(np.vdot(base, other)) / size
        assert overlap < 5 / np.sqrt(size)


@pytest.mark.parametrize("kind", KINDS)
def test_moments(kind):
    noise = noise_vectors(LATTICE, EVEN, "moments", 314, range(400), kind)
    size, sigma = noise.size, 5 / np.sqrt(noise.size)
    assert abs(noise.mean()) < sigma
    assert abs(np.mean(np.abs(noise) ** 2) - 1) < sigma
    assert abs(np.mean(noise**2) - (kind == "z2")) < sigma
    fourth = {"gaussian": 2.0}.get(kind, 1.0)
    assert abs(np.mean(np.abs(noise) ** 4) - fourth) < 5 * np.sqrt(20 / size)


@pytest.mark.parametrize(("kind", "order"), [("z2", 2), ("z4", 4), ("u1", 2**16)])
def test_values_are_all_the_roots_with_equal_weight(kind, order):
    noise = noise_vectors(LATTICE, EVEN, "values", 27, range(60), kind).ravel()
    power = np.round(np.angle(noise) / (2 * np.pi) * order).astype(int) % order
    assert np.allclose(noise, np.exp(2j * np.pi * power / order), rtol=0, atol=2e-15)
    counts = np.bincount(power * min(order, 64) // order)
    expected = noise.size / len(counts)
    chi_squared = np.sum((counts - expected) ** 2 / expected)
    assert len(counts) == min(order, 64)
    assert chi_squared < len(counts) + 6 * np.sqrt(2 * len(counts))


def test_roots_of_unity_are_correctly_rounded():
    """|w|^2 = 1 + O(ulp), exact symmetries, and sums of angles, in exact rational arithmetic."""
    table = roots_of_unity()
    quadrant = len(table) // 4
    assert np.array_equal(table.real[: quadrant + 1], table.imag[quadrant::-1])
    for k in (1, 777, 8192, 12345):
        cosine, sine = Fraction(table[k].real), Fraction(table[k].imag)
        assert abs(cosine**2 + sine**2 - 1) < Fraction(1, 2**52)
        double = complex(cosine**2 - sine**2, 2 * cosine * sine)
        assert abs(double - table[2 * k]) < 4e-16


def test_single_precision_is_the_rounded_double():
    double = noise_vectors(LATTICE, EVEN, "c.1", 3, (1, 2), "gaussian")
    single = noise_vectors(LATTICE, EVEN, "c.1", 3, (1, 2), "gaussian", np.complex64)
    assert single.dtype == np.complex64
    assert np.array_equal(single, double.astype(np.complex64))


def test_refusals():
    with pytest.raises(InputError, match=r"noise kind must be one of z2, z4, u1, gaussian, got 'z3'"):
        noise_vectors(LATTICE, EVEN, "a", 3, (0,), "z3")
    with pytest.raises(InputError, match="noise index must be a whole number from 0 to"):
        noise_vectors(LATTICE, EVEN, "a", 3, (-1,))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_device_gives_the_same_noise(kind):
    cupy = pytest.importorskip("cupy")
    host = noise_vectors(LATTICE, ODD, "d.3", 8, (0, 9), kind)
    device = noise_vectors(LATTICE, ODD, "d.3", 8, (0, 9), kind, xp=cupy).get()
    if kind == "gaussian":
        assert np.max(np.abs(host - device) / np.abs(host)) < 4 * np.finfo(float).eps
    else:
        assert host.tobytes() == device.tobytes()
