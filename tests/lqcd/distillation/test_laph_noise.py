"""LapH noise: its counter, golden bits, moments, what it depends on, refusals."""

import hashlib

import numpy as np
import pytest

from stages.lqcd.distillation.laph_noise import KINDS, laph_noise
from stages.lqcd.kernels.random_numbers import philox4x32, philox_key, roots_of_unity
from stages.lqcd.lattice.geometry import EVEN, Lattice
from stages.lqcd.noise.vectors import noise_vectors
from support.refusals import refuses

kinds = pytest.mark.parametrize("kind", KINDS)
GOLDEN = {"z2": "44c4be00a8f57d0f", "z4": "409774b2f163c869", "u1": "e340cb37d2088e60"}


@kinds
def test_golden_bits(kind):
    noise = laph_noise("l2464f211b600m0102m0509m635a.102", 20261121, 4096, range(5), 13, kind)
    assert hashlib.sha256(noise.tobytes()).hexdigest()[:16] == GOLDEN[kind]


def test_spins_are_the_words_of_the_documented_counter():
    counter = tuple(np.array([word], np.uint64) for word in (9, 6, 0, 12))
    words = [int(word[0]) for word in philox4x32(counter, philox_key(77, "a.5\0laph"))]
    noise = laph_noise("a.5", 77, 12, (3, 6), 10, "u1")
    assert np.array_equal(noise[1, :, 9], [roots_of_unity()[word >> 16] for word in words])


@kinds
def test_other_times_and_more_eigenvectors_do_not_alter_bits(kind):
    whole = laph_noise("b.7", 5, 2, range(8), 11, kind)
    assert whole.shape == (8, 4, 11)
    assert np.array_equal(whole[[6, 1], :, :4], laph_noise("b.7", 5, 2, (6, 1), 4, kind))


@kinds
def test_other_seed_label_or_index_gives_other_noise(kind):
    base = laph_noise("b.7", 5, 2, range(16), 40, kind)
    others = [
        laph_noise("b.7", 6, 2, range(16), 40, kind),
        laph_noise("b.8", 5, 2, range(16), 40, kind),
        laph_noise("b.7", 5, 3, range(16), 40, kind),
        *(np.roll(base, 1, axis) for axis in range(3)),
    ]
    for other in others:
        assert abs(np.vdot(base, other)) / base.size < 5 / np.sqrt(base.size)


def test_it_is_not_the_noise_on_sites():
    """Counters of low sites at components 0 to 3 are those of eigenvectors at t = 0."""
    lattice = Lattice((8, 8, 8, 4))
    on_sites = noise_vectors(lattice, EVEN, "b.7", 5, (2,), "u1")[:, :, 0]
    vectors = lattice.lexicographic(EVEN)
    in_space = laph_noise("b.7", 5, 2, (0,), int(vectors.max()) + 1, "u1")[0, :3, vectors]
    assert abs(np.vdot(on_sites, in_space)) / on_sites.size < 5 / np.sqrt(on_sites.size)


@kinds
def test_unit_modulus_and_covariance(kind):
    """<rho> = 0, <rho rho^H> = 1 within 5 standard errors, |rho| = 1 exactly, to an ulp for U(1)."""
    samples = 4000
    rho = np.array([laph_noise("moments", 314, n, (0, 5), 4, kind).reshape(-1) for n in range(samples)])
    assert np.abs(np.abs(rho) - 1).max() <= (2.3e-16 if kind == "u1" else 0)
    covariance = rho.T @ rho.conj() / samples
    bound = 5 / np.sqrt(samples)
    assert np.abs(rho.mean(axis=0)).max() < bound
    assert np.abs(covariance - np.eye(32)).max() < bound
    assert abs(np.mean(rho**2) - (kind == "z2")) < bound


def test_refusals():
    refuses(r"one of z2, z4, u1, got 'gaussian'", laph_noise, "a", 3, 0, (0,), 4, "gaussian")
    refuses(r"from 0 to 2\^32 - 1, got 4294967296", laph_noise, "a", 3, 2**32, (0,), 4, "z4")
