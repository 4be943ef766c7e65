"""Kernels on links: exponentials, phases, decompositions, field strength, staples, doubled links."""

import numpy as np
import pytest
from scipy.linalg import expm

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import implementation_of
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


def staples_by_shifts(field, u, lattice, mu, nu):
    """U F U^dag above and U^dag F U below, by rolling the lexicographic lattice, in double."""
    f, u = (to_lexicographic(values.astype(complex), lattice) for values in (field, u))

    def ahead(values, direction, hops=1):
        return np.roll(values, -hops, axis=3 - direction)

    above = u @ ahead(f, nu) @ dagger(ahead(u, mu))
    below = ahead(dagger(u) @ f @ ahead(u, mu), nu, -1)
    return to_parity(above + below, lattice)


@pytest.mark.parametrize("plane", [(mu, nu) for mu in range(4) for nu in range(4) if mu != nu], ids=str)
def test_staples_equal_shifts_of_the_lattice(backend, random, tolerance, plane):
    lattice = Lattice((6, 4, 2, 8))
    start, field, links = (random(2, lattice.half_volume, 3, 3) for _ in range(3))
    out = backend.array(start)
    backend.kernels.smearing.add_staple(
        out, backend.array(field), backend.array(links), lattice, *plane, -0.7
    )
    expected = start - 0.7 * staples_by_shifts(field, links, lattice, *plane)
    assert np.abs(backend.host(out) - expected).max() <= tolerance * np.abs(expected).max()


def test_refuses_a_plane_of_one_direction_and_overwriting(backend, random):
    lattice = Lattice((4, 4, 4, 4))
    out, links = (backend.array(random(2, lattice.half_volume, 3, 3)) for _ in range(2))
    with pytest.raises(InputError, match="two different directions"):
        backend.kernels.smearing.add_staple(out, links, links, lattice, 2, 2, 1.0)
    with pytest.raises(InputError, match="must not be one of its inputs"):
        backend.kernels.smearing.add_staple(out, links, out, lattice, 0, 1, 1.0)


LATTICE = Lattice((6, 4, 2, 8))


def by_shifts(field, mu, hops, sign):
    """Links forward, and pre-daggered ones backward with a sign, of a direction, ``[parity, site, 3, 3]``."""
    plain = to_lexicographic(field[mu], LATTICE)
    behind = np.roll(plain, hops, axis=3 - mu).conj().swapaxes(-1, -2)
    return field[mu], to_parity(sign * behind, LATTICE)


def doubled_links(backend, links, parity, out):
    """Write them as each package of a backend does."""
    if backend.xp is not np:
        tile = (1, 1, 1, 1)
        if out.shape[1] == 6:
            rows = out.reshape(-1, 6, 1, 3, 3)
            numbers = backend.array(np.ones(12))
            weighted = implementation_of("link_fields.weighted_in_tiles", "cuda")
            yield weighted(links[0], numbers, LATTICE, parity, rows, tile)
        else:
            yield implementation_of("link_fields.in_tiles", "cuda")(*links, LATTICE, parity, out, tile)
        return
    for package in ("cpu", "reference"):
        yield implementation_of("link_fields.doubled_links", package)(*links, LATTICE, parity, out)


@pytest.mark.parametrize("parity", [0, 1])
@pytest.mark.parametrize("directions", [16, 8, 6])
def test_doubled_links_equal_shifts_of_the_lattice(backend, dtype, parity, directions):
    rng = np.random.default_rng(8)
    shape = (4, 2, LATTICE.half_volume, 3, 3)
    fat, long = (rng.normal(size=shape) + 1j * rng.normal(size=shape) for _ in range(2))
    expected = []
    for mu in range(3 if directions == 6 else 4):
        expected += by_shifts(fat, mu, 1, 1 if directions == 6 else -1)
        if directions == 16:
            expected += by_shifts(long, mu, 3, -1)
    wanted = np.stack([direction[parity] for direction in expected], axis=1)
    links = [backend.array(fat), backend.array(long) if directions == 16 else None]
    out = backend.xp.full((LATTICE.half_volume, directions, 3, 3), np.nan, dtype)
    for _ in doubled_links(backend, links, parity, out):
        assert np.array_equal(backend.host(out), wanted.astype(dtype))
        out.fill(np.nan)
