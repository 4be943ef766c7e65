"""HISQ, asqtad and naive links: MILC's files and eigenvalues, free fields, symmetries."""

from dataclasses import replace

import numpy as np
import pytest

from stages.lqcd.gauge.fat_links import Paths, fat_links
from stages.lqcd.gauge.hisq import asqtad_links, hisq_links, naive_links
from stages.lqcd.gauge.phases import with_boundary, with_phases
from stages.lqcd.gauge.reunitarise import to_su3, to_u3
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.formats import read_field, read_gauge
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.refusals import refuses

LATTICE = Lattice((4, 2, 6, 4))


def dense_dslash(links, parity):
    """D from the opposite parity into `parity` as a matrix ``[3 sites, 3 sites]``, from its formula."""
    lattice, here = links.lattice, np.arange(links.lattice.half_volume)
    matrix = np.zeros((len(here), 3, len(here), 3), complex)
    for mu in range(4):
        for hops, field in ((1, links.fat), (3, links.long)):
            if field is not None:
                forward, backward = (lattice.neighbour(parity, mu, sign * hops) for sign in (1, -1))
                hop_back = field[mu, 1 - parity][backward].conj().swapaxes(-1, -2)
                np.add.at(matrix, (here, slice(None), forward), field[mu, parity])
                np.add.at(matrix, (here, slice(None), backward), -hop_back)
    return matrix.reshape(3 * len(here), 3 * len(here))


@pytest.fixture
def links(random_su3):
    return random_su3(61, 4, 2, LATTICE.half_volume)


@pytest.fixture
def unit():
    return np.broadcast_to(np.eye(3, dtype=complex), (4, 2, LATTICE.half_volume, 3, 3)).copy()


def test_eigenvalues_are_milcs(reference_data, expected, backend):
    entry = expected["hisq:eigs_l4444"]
    configuration = read_gauge(reference_data / entry["files"][0])
    links = hisq_links(
        backend.xp.asarray(configuration.links),
        configuration.lattice,
        boundary="antiperiodic",
        naik_epsilon=entry["values"]["eps"],
    )
    assert 1e-8 < links.deviation < 1e-6
    links = replace(links, fat=as_numpy(links.fat), long=as_numpy(links.long))
    eigenvalues = np.linalg.eigvalsh(-dense_dslash(links, EVEN) @ dense_dslash(links, ODD))
    reference = entry["values"]["eig"]
    np.testing.assert_allclose(eigenvalues[: len(reference)], reference, rtol=entry["rtol"])


def test_asqtad_links_are_milcs(reference_data, expected):
    entry = expected["asqtad:fat"]
    thin, fat, long = (read_field(reference_data / name) for name in entry["files"])
    u0 = entry["values"]["u0"]
    links = asqtad_links(thin.values, thin.lattice, boundary="antiperiodic", u0=u0)
    assert np.linalg.norm(links.fat - fat.values) <= entry["rtol"] * np.linalg.norm(fat.values)
    assert np.linalg.norm(links.long - long.values) <= entry["rtol"] * np.linalg.norm(long.values)


@pytest.mark.parametrize("boundary", ["periodic", "antiperiodic"])
@pytest.mark.parametrize("naik_epsilon", [0.0, -0.37])
def test_free_field(unit, boundary, naik_epsilon):
    """Unit links: fat 1 + (1 + eps)/8, long -(1 + eps)/24, times phases and boundary signs."""
    links = hisq_links(unit, LATTICE, boundary=boundary, naik_epsilon=naik_epsilon)
    eta = with_phases(unit, LATTICE)
    t = np.stack([LATTICE.coordinates(parity)[:, 3] for parity in (EVEN, ODD)])
    sign = np.ones((2, 4, 2, LATTICE.half_volume, 1, 1))
    if boundary == "antiperiodic":
        sign[0, 3] = np.where(t + 1 >= 4, -1, 1)[..., None, None]
        sign[1, 3] = np.where(t + 3 >= 4, -1, 1)[..., None, None]
    assert abs(links.fat - (9 + naik_epsilon) / 8 * sign[0] * eta).max() < 1e-14
    assert abs(links.long + (1 + naik_epsilon) / 24 * sign[1] * eta).max() < 1e-14
    assert abs(links.thin() - sign[0] * eta).max() < 1e-14
    assert links.boundary == ("periodic", "periodic", "periodic", boundary)


def test_asqtad_is_tree_level_improved(unit):
    """At u0 = 1 the one-hop and three-hop weights make the derivative exact to third order: 9/8, -1/24."""
    links = asqtad_links(unit, LATTICE, boundary="periodic", u0=1.0)
    eta = with_phases(unit, LATTICE)
    assert abs(links.fat - 9 / 8 * eta).max() < 1e-14
    assert abs(links.long + 1 / 24 * eta).max() < 1e-14


def test_naik_epsilon_adds_reunitarised_links(links):
    """eps enters linearly: eps/8 W in the fat links, -eps/24 WWW in the long ones."""
    at = {eps: hisq_links(links, LATTICE, boundary="antiperiodic", naik_epsilon=eps) for eps in (0.0, -0.4)}
    level_one = fat_links(
        with_boundary(links, LATTICE, "antiperiodic"), LATTICE, Paths(1 / 8, 1 / 16, 1 / 64, 1 / 384)
    )
    w = with_phases(to_u3(level_one).matrices, LATTICE)
    assert abs(at[-0.4].fat - at[0.0].fat + 0.4 / 8 * w).max() < 1e-13
    assert abs(at[-0.4].long - 0.6 * at[0.0].long).max() < 1e-15
    unitary = -24 * at[0.0].long
    assert abs(unitary.conj().swapaxes(-1, -2) @ unitary - np.eye(3)).max() < 1e-13


@pytest.mark.parametrize(
    "construct",
    [
        lambda u, **k: hisq_links(u, LATTICE, naik_epsilon=-0.2, **k),
        lambda u, **k: asqtad_links(u, LATTICE, u0=0.8, **k),
        lambda u, **k: naive_links(u, LATTICE, **k),
    ],
)
def test_gauge_covariance(construct, links, random_su3, transformed):
    g = random_su3(67, 2, LATTICE.half_volume)
    plain, rotated = (
        construct(u, boundary="antiperiodic") for u in (links, transformed(links, g, LATTICE, 1))
    )
    pairs = [(plain.fat, rotated.fat, 1), (plain.thin(), rotated.thin(), 1), (plain.long, rotated.long, 3)]
    if plain.unitary:
        pairs.append((plain.smeared(), rotated.smeared(), 1))
    for before, after, hops in pairs:
        if before is not None:
            assert abs(after - transformed(before, g, LATTICE, hops)).max() < 1e-12


def test_dslash_is_antihermitian(links):
    built = hisq_links(links, LATTICE, boundary="antiperiodic", naik_epsilon=0.1)
    even, odd = (dense_dslash(built, parity) for parity in (EVEN, ODD))
    assert abs(even + odd.conj().T).max() < 1e-14


def test_antiperiodic_links_differ_by_the_signs_alone(links):
    """A sign on all links that cross one slice drops out of every staple that does not cross it."""
    periodic, antiperiodic = (
        hisq_links(links, LATTICE, boundary=boundary, naik_epsilon=0.0)
        for boundary in ("periodic", "antiperiodic")
    )
    ratio = np.real(antiperiodic.fat[3] / periodic.fat[3])
    t = np.stack([LATTICE.coordinates(parity)[:, 3] for parity in (EVEN, ODD)])
    np.testing.assert_allclose(
        ratio, np.broadcast_to(np.where(t == 3, -1, 1)[..., None, None], ratio.shape), atol=1e-9
    )
    assert abs(antiperiodic.fat[:3] - periodic.fat[:3]).max() < 1e-13


def test_naive_links_are_the_thin_ones(links):
    built = naive_links(links, LATTICE, boundary="antiperiodic")
    assert built.long is None
    assert np.array_equal(built.fat, built.thin())
    expected = with_phases(with_boundary(to_su3(links).links, LATTICE, "antiperiodic"), LATTICE)
    assert np.array_equal(built.thin(), expected)


def test_input_is_left_alone_and_checked(links):
    before = links.copy()
    hisq_links(links, LATTICE, boundary="antiperiodic", naik_epsilon=0.0)
    naive_links(links, LATTICE, boundary="antiperiodic")
    assert np.array_equal(links, before)
    refuses("shape", naive_links, links[:3], LATTICE, boundary="periodic")
    refuses(r"SU\(3\)", hisq_links, 1.2 * links, LATTICE, boundary="periodic", naik_epsilon=0.0)
    refuses("u0 must be positive", asqtad_links, links, LATTICE, boundary="periodic", u0=0.0)
    refuses("boundary", naive_links, links, LATTICE, boundary="antiperodic")
