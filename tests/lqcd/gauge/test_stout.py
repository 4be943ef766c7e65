"""Stout smearing: SU(3), gauge covariance, one link by hand, what it lowers, its misuse."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.linalg import expm

from stages.base.errors import InputError
from stages.lqcd.gauge.stout import SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.geometry import Lattice, T

LATTICE = Lattice((4, 2, 6, 4))


def deviation_from_su3(links):
    unitarity = np.abs(links @ links.conj().swapaxes(-1, -2) - np.eye(3)).max()
    return max(unitarity, np.abs(np.linalg.det(links) - 1).max())


def test_one_link_by_hand(xp, random_su3):
    """The smeared link of one site from its definition, walking round each staple."""
    links = random_su3(3, 4, 2, LATTICE.half_volume)
    smeared = as_numpy(stout_links(xp.asarray(links), LATTICE, 0.11, 1))

    def u(mu, x):
        return links[mu, int(x.sum()) % 2, LATTICE.site(x)]

    for mu, start in ((0, [1, 0, 5, 3]), (3, [2, 1, 0, 3])):
        x, steps = np.array(start), np.eye(4, dtype=int)
        staples = np.zeros((3, 3), complex)
        for nu in set(range(4)) - {mu}:
            e, f = steps[mu], steps[nu]
            wrapped = [np.mod(y, LATTICE.extents) for y in (x + f, x + e, x - f, x - f + e)]
            up, side, down, corner = wrapped
            staples += u(nu, x) @ u(mu, up) @ u(nu, side).conj().T
            staples += u(nu, down).conj().T @ u(mu, down) @ u(nu, corner)
        omega = 0.11 * staples @ u(mu, x).conj().T
        A = (omega - omega.conj().T) / 2
        A -= np.trace(A) / 3 * np.eye(3)
        expected = expm(A) @ u(mu, x)
        assert np.abs(smeared[mu, int(x.sum()) % 2, LATTICE.site(x)] - expected).max() < 1e-14


@pytest.mark.parametrize("directions", [(0, 1, 2, 3), SPATIAL_DIRECTIONS])
def test_gauge_covariant_and_in_su3(xp, random_su3, transformed, directions):
    links, g = random_su3(7, 4, 2, LATTICE.half_volume), random_su3(8, 2, LATTICE.half_volume)

    def moved(field):
        return transformed(field, g, LATTICE, 1)

    def smeared(field):
        return as_numpy(stout_links(xp.asarray(field), LATTICE, 0.14, 3, directions))

    found = smeared(links)
    assert np.abs(smeared(moved(links)) - moved(found)).max() < 1e-13
    assert deviation_from_su3(found) < 1e-13
    assert np.abs(found[0] - links[0]).max() > 0.1
    assert np.array_equal(found[T], links[T]) == (T not in directions)


def test_time_links_are_in_no_spatial_staple(xp, random_su3):
    links = random_su3(11, 4, 2, LATTICE.half_volume)
    other = links.copy()
    other[T] = random_su3(12, 2, LATTICE.half_volume)
    one, two = (stout_links(xp.asarray(u), LATTICE, 0.1, 2, SPATIAL_DIRECTIONS) for u in (links, other))
    assert np.array_equal(as_numpy(one[:T]), as_numpy(two[:T]))


def mean_plaquette(links):
    total = []
    for (mu, nu), parity in product([(m, n) for m in range(4) for n in range(m)], range(2)):
        up, side = (LATTICE.neighbour(parity, direction, 1) for direction in (nu, mu))
        loop = links[mu, parity] @ links[nu, 1 - parity][side]
        loop = loop @ links[mu, 1 - parity][up].conj().swapaxes(-1, -2)
        loop = loop @ links[nu, parity].conj().swapaxes(-1, -2)
        total.append(np.trace(loop, axis1=-2, axis2=-1).real.mean() / 3)
    return np.mean(total)


def test_smooths(xp, random_su3):
    """Small steps follow the gradient of the plaquette action: the mean plaquette grows with each."""
    links = xp.asarray(random_su3(13, 4, 2, LATTICE.half_volume))
    values = [mean_plaquette(as_numpy(stout_links(links, LATTICE, 0.05, n))) for n in range(5)]
    assert (np.diff(values) > 0.01).all()


def test_does_not_touch_its_input(xp, random_su3):
    links = random_su3(14, 4, 2, LATTICE.half_volume)
    given = xp.asarray(links)
    unsmeared = stout_links(given, LATTICE, 0.1, 0)
    stout_links(given, LATTICE, 0.1, 1)
    assert np.array_equal(as_numpy(given), links) and np.array_equal(as_numpy(unsmeared), links)
    assert unsmeared is not given


def test_refuses_wrong_links_and_steps(random_su3):
    links = random_su3(15, 4, 2, LATTICE.half_volume)
    with pytest.raises(InputError, match="must be complex128 of shape"):
        stout_links(links[:3], LATTICE, 0.1, 1)
    with pytest.raises(InputError, match="must be complex128 of shape"):
        stout_links(links.astype(np.complex64), LATTICE, 0.1, 1)
    with pytest.raises(InputError, match="an integer, 0 or more, got -1"):
        stout_links(links, LATTICE, 0.1, -1)
