"""Stout smearing: one link by hand, its misuse; the rest is in the table of `test_ape_and_hyp`."""

import numpy as np
from scipy.linalg import expm

from stages.lqcd.gauge.stout import stout_links
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.geometry import Lattice
from support.refusals import refuses

LATTICE = Lattice((4, 2, 6, 4))


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


def test_refuses_wrong_links_and_steps(random_su3):
    links = random_su3(15, 4, 2, LATTICE.half_volume)
    refuses("must be complex128 of shape", stout_links, links[:3], LATTICE, 0.1, 1)
    refuses("must be complex128 of shape", stout_links, links.astype(np.complex64), LATTICE, 0.1, 1)
    refuses("an integer, 0 or more, got -1", stout_links, links, LATTICE, 0.1, -1)
