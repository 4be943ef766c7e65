"""Kernels on link matrices: the exponential of stout smearing, phases and decompositions, field strength."""

import numpy as np
import pytest
from scipy.linalg import expm

from stages.base.errors import InputError
from stages.lqcd.kernels.gamma import sigma
from stages.lqcd.lattice.geometry import Lattice
from support.lexicographic import to_lexicographic, to_parity
from support.matrices import dagger

RNG = np.random.default_rng(31)


def normal(*shape):
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


def unitary(count, special=False):
    q = np.linalg.qr(normal(count, 3, 3))[0]
    return q / np.linalg.det(q)[:, None, None] ** (1 / 3) if special else q


def deviation_from_su3(links):
    unitarity = np.abs(links @ dagger(links) - np.eye(3)).max()
    return max(unitarity, np.abs(np.linalg.det(links) - 1).max())


@pytest.mark.parametrize("size", [0.0, 1e-14, 1e-6, 0.3, 5.0])
def test_stout_links_are_the_exponential_times_the_link(backend, size):
    random = normal(70, 3, 3)
    parts = (random - dagger(random)) / 2
    parts -= np.trace(parts, axis1=-2, axis2=-1)[:, None, None] / 3 * np.eye(3)
    degenerate = [np.diag([1j, 1j, -2j]), np.diag([-1j, 2j, -1j]), np.diag([1j, -1j, 0])]
    A = size * np.concatenate([parts, degenerate])
    links = unitary(len(A), special=True)
    hermitian = normal(len(A), 3, 3)
    staples = (A + hermitian + dagger(hermitian) + 0.7j * np.eye(3)) @ links
    out = backend.array(np.zeros_like(links))
    backend.kernels.smearing.smeared_links(backend.array(staples), backend.array(links), out)
    expected = np.stack([expm(a) @ u for a, u in zip(A, links, strict=True)])
    assert np.abs(backend.host(out) - expected).max() < 1e-14 * (1 + size) * 5
    assert deviation_from_su3(backend.host(out)) < 1e-13


def test_stout_links_in_place(backend):
    staples, links = (backend.array(values) for values in (normal(40, 3, 3), unitary(40, special=True)))
    out = backend.xp.empty_like(links)
    backend.kernels.smearing.smeared_links(staples, links, out)
    backend.kernels.smearing.smeared_links(staples, links, links)
    assert (backend.host(links) == backend.host(out)).all()
    with pytest.raises(InputError, match="staples must be"):
        backend.kernels.smearing.smeared_links(staples[:-1], links, out)


def test_the_phase_of_the_determinant_is_taken_out(backend):
    matrices = unitary(75)
    matrices[0], matrices[1] = np.eye(3), np.diag([1, 1, np.exp(-3.1j)])
    w = backend.array(matrices)
    backend.kernels.smearing.without_phase(w)
    result = backend.host(w)
    assert deviation_from_su3(result) < 1e-14
    phase = np.exp(-1j / 3 * np.angle(np.linalg.det(matrices)))
    assert np.abs(result - phase[:, None, None] * matrices).max() < 1e-15 * 5


def test_polar_factors_by_singular_values(backend):
    matrices, chosen = normal(20, 3, 3), np.arange(20) % 3 == 0
    v = backend.array(matrices)
    assert backend.kernels.smearing.by_singular_values(v, backend.array(chosen)) == chosen.sum()
    result = backend.host(v)
    assert (result[~chosen] == matrices[~chosen]).all()
    w = result[chosen]
    assert np.abs(w @ dagger(w) - np.eye(3)).max() < 1e-14
    hermitian = dagger(w) @ matrices[chosen]
    assert np.abs(hermitian - dagger(hermitian)).max() < 1e-13
    assert backend.kernels.smearing.by_singular_values(v, backend.array(np.zeros(20, bool))) == 0


def test_scaled_fields(backend, random):
    x = random(4, 5, 3, 3)
    field, out = backend.array(x), backend.array(np.zeros_like(x))
    backend.kernels.block_blas.scale(field, 0.3, out)
    backend.kernels.block_blas.scale(field, 0.3, field)
    assert (backend.host(out) == 0.3 * x).all() and (backend.host(field) == 0.3 * x).all()


@pytest.mark.parametrize("plane", [(0, 1), (2, 0), (1, 3), (3, 2)], ids=str)
def test_field_strength_equals_shifts_of_the_lattice(backend, random, tolerance, plane):
    lattice, (mu, nu) = Lattice((6, 4, 2, 8)), plane
    links = random(4, 2, lattice.half_volume, 3, 3)
    found = [backend.array(random(lattice.half_volume, 3, 3)) for _ in range(2)]
    for parity, f in enumerate(found):
        backend.kernels.clover.field_strength(backend.array(links), lattice, parity, mu, nu, f)
    u = {d: to_lexicographic(links[d].astype(complex), lattice) for d in plane}

    def at(direction, *hops):
        moved = u[direction]
        for axis, hop in hops:
            moved = np.roll(moved, -hop, axis=3 - axis)
        return moved

    up, down, left, back = (mu, 1), (mu, -1), (nu, 1), (nu, -1)
    q = at(mu) @ at(nu, up) @ dagger(at(mu, left)) @ dagger(at(nu))
    q += at(nu) @ dagger(at(mu, left, down)) @ dagger(at(nu, down)) @ at(mu, down)
    q += dagger(at(mu, down)) @ dagger(at(nu, down, back)) @ at(mu, down, back) @ at(nu, back)
    q += dagger(at(nu, back)) @ at(mu, back) @ at(nu, up, back) @ dagger(at(mu))
    expected = to_parity((q - dagger(q)) / 8, lattice)
    f = np.stack([backend.host(of_parity) for of_parity in found])
    assert np.abs(f - expected).max() <= 2 * tolerance * np.abs(expected).max()
    with pytest.raises(InputError, match="two different directions"):
        backend.kernels.clover.field_strength(backend.array(links), lattice, 0, mu, mu, found[0])


def test_clover_term_gains_spins_times_colours(backend, random, tolerance):
    term, strength = random(50, 2, 6, 6), random(50, 3, 3)
    spins = sigma(1, 3)
    blocks = np.stack([spins[:2, :2], spins[2:, 2:]])
    out = backend.array(term)
    backend.kernels.clover.add_clover(out, backend.array(strength), blocks)
    for site in (0, 49, 17):
        for chirality in range(2):
            expected = term[site][chirality] + np.kron(blocks[chirality], strength[site])
            assert np.abs(backend.host(out)[site][chirality] - expected).max() <= 2 * tolerance * 10
