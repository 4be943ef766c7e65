"""Smearing: APE and HYP by definition; covariance, SU(3) and what stays of all kinds; misuse."""

from functools import partial

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.gauge.ape import ape_links
from stages.lqcd.gauge.hyp import hyp_links
from stages.lqcd.gauge.reunitarise import polar_su3
from stages.lqcd.gauge.stout import ALL_DIRECTIONS, SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T
from stages.lqcd.lattice.plaquette import plaquette
from support.matrices import dagger
from support.refusals import refuses

LATTICE, CUBE = Lattice((4, 2, 6, 4)), Lattice((4, 4, 4, 4))
SPACE, ALL = SPATIAL_DIRECTIONS, ALL_DIRECTIONS
SMEARINGS = {
    "ape in space": partial(ape_links, alpha=0.5, directions=SPACE),
    "ape": partial(ape_links, alpha=0.6, directions=ALL),
    "hyp in space": partial(hyp_links, alpha=(0.6, 0.3), directions=SPACE),
    "hyp": partial(hyp_links, alpha=(0.75, 0.6, 0.3), directions=ALL),
    "stout in space": partial(stout_links, rho=0.14, directions=SPACE),
    "stout": partial(stout_links, rho=0.14, directions=ALL),
}
smearings = pytest.mark.parametrize("name", SMEARINGS)


def deviation_from_su3(links):
    return max(np.abs(links @ dagger(links) - np.eye(3)).max(), np.abs(np.linalg.det(links) - 1).max())


@pytest.fixture
def links(random_su3):
    """Rough links, but not so rough that sums of staples are nearly singular, where rounding errors grow."""
    return near_identity(random_su3(5, 4, 2, LATTICE.half_volume))


def near_identity(links):
    return polar_su3(links + np.eye(3))


def on_grid(links, lattice):
    """Of each direction, ``[t, z, y, x, 3, 3]``."""
    grid = np.empty((4, *lattice.extents[::-1], 3, 3), complex)
    for parity in (EVEN, ODD):
        x, y, z, t = lattice.coordinates(parity).T
        grid[:, t, z, y, x] = links[:, parity]
    return list(grid)


def walked_staples(along, across, mu, nu):
    """Both staples of `along` (mu) between `across` (nu) on grids, by rolls."""

    def ahead(field, direction):
        return np.roll(field, -1, axis=3 - direction)

    upper = across @ ahead(along, nu) @ dagger(ahead(across, mu))
    lower = np.roll(dagger(across) @ along @ ahead(across, mu), 1, axis=3 - nu)
    return upper + lower


def projected(v):
    """P of the definition by singular values."""
    left, _, right = np.linalg.svd(v)
    w = left @ right
    return w / (np.linalg.det(w) ** (1 / 3))[..., None, None]


def ape_by_definition(u, alpha, directions):
    result = list(u)
    for mu in directions:
        others = [nu for nu in directions if nu != mu]
        total = sum(walked_staples(u[mu], u[nu], mu, nu) for nu in others)
        result[mu] = projected((1 - alpha) * u[mu] + alpha / (2 * len(others)) * total)
    return result


def hyp_in_space_by_definition(u, alpha2, alpha3):
    """Level by level, as in equations of three dimensions: `inner[mu, nu]` is decorated along nu alone."""
    inner = {}
    for mu in range(3):
        for nu in {0, 1, 2} - {mu}:
            inner[mu, nu] = projected(
                (1 - alpha3) * u[mu] + alpha3 / 2 * walked_staples(u[mu], u[nu], mu, nu)
            )
    result = list(u)
    for mu in range(3):
        total = 0
        for nu in {0, 1, 2} - {mu}:
            (rho,) = {0, 1, 2} - {mu, nu}
            total = total + walked_staples(inner[mu, rho], inner[nu, rho], mu, nu)
        result[mu] = projected((1 - alpha2) * u[mu] + alpha2 / 4 * total)
    return result


def hyp_by_definition(u, alpha1, alpha2, alpha3):
    """Level by level as in the source: bar[mu, {nu, rho}], tilde[mu, nu] are not decorated along nu, rho."""
    bar, tilde, every = {}, {}, {0, 1, 2, 3}
    for mu in every:
        for eta in every - {mu}:
            staple = walked_staples(u[mu], u[eta], mu, eta)
            bar[mu, frozenset(every - {mu, eta})] = projected((1 - alpha3) * u[mu] + alpha3 / 2 * staple)
    for mu in every:
        for nu in every - {mu}:
            total = 0
            for rho in every - {mu, nu}:
                along, across = bar[mu, frozenset({nu, rho})], bar[rho, frozenset({nu, mu})]
                total = total + walked_staples(along, across, mu, rho)
            tilde[mu, nu] = projected((1 - alpha2) * u[mu] + alpha2 / 4 * total)
    result = []
    for mu in sorted(every):
        total = sum(walked_staples(tilde[mu, nu], tilde[nu, mu], mu, nu) for nu in every - {mu})
        result.append(projected((1 - alpha1) * u[mu] + alpha1 / 6 * total))
    return result


BY_DEFINITION = {
    "ape in space": partial(ape_by_definition, alpha=0.5, directions=SPACE),
    "ape": partial(ape_by_definition, alpha=0.6, directions=ALL),
    "hyp in space": partial(hyp_in_space_by_definition, alpha2=0.6, alpha3=0.3),
    "hyp": partial(hyp_by_definition, alpha1=0.75, alpha2=0.6, alpha3=0.3),
}


@pytest.mark.parametrize("name", BY_DEFINITION)
def test_two_steps_by_definition(backend, random_su3, name):
    thin = near_identity(random_su3(3, 4, 2, CUBE.half_volume))
    found = as_numpy(SMEARINGS[name](backend.xp.asarray(thin), CUBE, steps=2))
    step = BY_DEFINITION[name]
    assert np.abs(np.array(on_grid(found, CUBE)) - step(step(on_grid(thin, CUBE)))).max() < 1e-13


@smearings
def test_gauge_covariant_and_in_su3(xp, links, random_su3, transformed, name):
    g = random_su3(8, 2, LATTICE.half_volume)

    def smeared(field):
        return as_numpy(SMEARINGS[name](xp.asarray(field), LATTICE, steps=3))

    found = smeared(links)
    moved, after = transformed(links, g, LATTICE, 1), transformed(found, g, LATTICE, 1)
    assert np.abs(smeared(moved) - after).max() < 1e-13
    assert deviation_from_su3(found) < 1e-13
    assert np.abs(found[:T] - links[:T]).max() > 0.1


@smearings
def test_time_links_in_space(xp, links, random_su3, name):
    """Smearing in space neither alters nor uses them; the other kind does both."""
    other = links.copy()
    other[T] = random_su3(12, 2, LATTICE.half_volume)
    one, two = (as_numpy(SMEARINGS[name](xp.asarray(u), LATTICE, steps=2)) for u in (links, other))
    in_space = "in space" in name
    assert np.array_equal(one[T], links[T]) == in_space
    assert np.array_equal(one[:T], two[:T]) == in_space


@smearings
def test_unit_links_and_pure_gauges_stay(xp, random_su3, transformed, name):
    unit = np.broadcast_to(np.eye(3, dtype=complex), (4, 2, LATTICE.half_volume, 3, 3))
    pure = transformed(unit, random_su3(9, 2, LATTICE.half_volume), LATTICE, 1)
    for field in (unit, pure):
        assert np.abs(as_numpy(SMEARINGS[name](xp.asarray(field), LATTICE, steps=4)) - field).max() < 1e-14


@smearings
def test_smooths(xp, random_su3, name):
    """The mean plaquette of the planes that are smeared grows with each step, from hot links on."""
    thin = xp.asarray(random_su3(13, 4, 2, LATTICE.half_volume))
    fields = [as_numpy(SMEARINGS[name](thin, LATTICE, steps=n)) for n in range(4)]
    values = [plaquette(field, LATTICE) for field in fields]
    grown = [p.spatial if "in space" in name else p.total for p in values]
    assert (np.diff(grown) > 0.02).all()


@pytest.mark.parametrize("smear", [partial(ape_links, alpha=0.0), partial(hyp_links, alpha=(0.0, 0.0, 0.0))])
def test_no_staples_no_smearing(xp, links, smear):
    found = as_numpy(smear(xp.asarray(links), LATTICE, steps=3))
    assert np.abs(found - links).max() < 1e-14


@smearings
def test_does_not_touch_its_input(xp, links, name):
    given = xp.asarray(links)
    unsmeared = SMEARINGS[name](given, LATTICE, steps=0)
    SMEARINGS[name](given, LATTICE, steps=1)
    assert np.array_equal(as_numpy(given), links) and np.array_equal(as_numpy(unsmeared), links)
    assert unsmeared is not given


def test_projection_is_the_nearest_of_the_polar_factors(backend, random_su3):
    """Of those that differ by a centre element it is the nearest to V; it is covariant on both sides."""
    rng = np.random.default_rng(44)
    v = rng.normal(size=(300, 3, 3)) + 1j * rng.normal(size=(300, 3, 3))
    left, right = random_su3(45, 300), random_su3(46, 300)
    found = as_numpy(polar_su3(backend.xp.asarray(v)))
    centre = np.exp(2j * np.pi / 3 * np.arange(3))[:, None]
    assert (np.trace(dagger(found) @ v, axis1=1, axis2=2) * centre).real.argmax(axis=0).max() == 0
    assert np.abs(found - projected(v)).max() < 1e-11 and deviation_from_su3(found) < 1e-13
    turned = as_numpy(polar_su3(backend.xp.asarray(left @ v @ right)))
    assert np.abs(turned - left @ found @ right).max() < 1e-11


def test_refusals(links):
    refuses("must be complex128 of shape", ape_links, links[:3], LATTICE, 0.5, 1)
    with pytest.raises(InputError, match="must be complex128 of shape"):
        hyp_links(links.astype(np.complex64), LATTICE, (0.75, 0.6, 0.3), 1)
    for steps in (-2, 1.5):
        refuses(f"steps is an integer, 0 or more, got {steps}", ape_links, links, LATTICE, 0.5, steps)
    refuses(r"0 to 1, got 2\.5", ape_links, links, LATTICE, 2.5, 1)
    with pytest.raises(InputError, match=r"3 directions is 2 shares .* got \[0\.75, 0\.6, 0\.3\]"):
        hyp_links(links, LATTICE, (0.75, 0.6, 0.3), 1, SPACE)
    refuses(r"each 0 to 1, .* got \[1\.6, 0\.3\]", hyp_links, links, LATTICE, (1.6, 0.3), 1, SPACE)
