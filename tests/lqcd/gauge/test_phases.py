"""Boundary signs and staggered phases."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.gauge.phases import parse_boundary, with_boundary, with_phases
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.geometry import Lattice
from support.lexicographic import gauge_to_lexicographic, to_lexicographic

LATTICE = Lattice((4, 6, 2, 8))


def test_one_word_is_the_time_direction():
    assert parse_boundary("antiperiodic") == ("periodic", "periodic", "periodic", "antiperiodic")
    assert parse_boundary(["periodic"] * 4) == ("periodic",) * 4


@pytest.mark.parametrize("boundary", ["anti", "", ["periodic"] * 3, ["periodic"] * 3 + ["dirichlet"]])
def test_invalid_boundary_is_named(boundary):
    with pytest.raises(InputError, match=r"boundary must be .* got"):
        parse_boundary(boundary)


def test_signs_are_on_links_leaving_the_last_slice(xp, random_su3):
    links = random_su3(91, 4, 2, LATTICE.half_volume)
    words = ("periodic", "antiperiodic", "periodic", "antiperiodic")
    signed = as_numpy(with_boundary(xp.asarray(links), LATTICE, words))
    expected = gauge_to_lexicographic(links, LATTICE)
    expected[:, :, -1, :, 1] *= -1
    expected[-1, :, :, :, 3] *= -1
    assert np.array_equal(gauge_to_lexicographic(signed, LATTICE), expected)


@pytest.fixture
def unit():
    return np.tile(np.eye(3, dtype=complex), (4, 2, LATTICE.half_volume, 1, 1))


def test_phases_are_milcs(xp, unit):
    t, _z, y, x = np.indices((8, 2, 6, 4))
    phases = as_numpy(with_phases(xp.asarray(unit), LATTICE))
    assert np.array_equal(phases, phases[..., :1, :1].real * unit)
    found = [to_lexicographic(field, LATTICE) for field in phases[..., 0, 0].real]
    assert np.array_equal(found[0], (-1.0) ** t)
    assert np.array_equal(found[1], (-1.0) ** (t + x))
    assert np.array_equal(found[2], (-1.0) ** (t + x + y))
    assert np.array_equal(found[3], np.ones_like(t))


def test_every_plaquette_of_phases_is_minus_one(xp, unit):
    eta = as_numpy(with_phases(xp.asarray(unit), LATTICE))[..., 0, 0].real
    for mu in range(4):
        for nu in range(mu):
            for parity in (0, 1):
                side, up = (LATTICE.neighbour(parity, direction, 1) for direction in (mu, nu))
                around = (
                    eta[mu, parity] * eta[nu, 1 - parity][side] * eta[mu, 1 - parity][up] * eta[nu, parity]
                )
                assert np.array_equal(around, -np.ones(LATTICE.half_volume))
