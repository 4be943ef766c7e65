"""Fat and long links against their definition: a sum over paths, each multiplied out link by link."""

from itertools import permutations, product

import numpy as np
import pytest

from stages.lqcd.gauge.fat_links import Paths, fat_links, long_links
from stages.lqcd.gauge.hisq import asqtad_links, hisq_links
from stages.lqcd.gauge.phases import with_phases
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.geometry import Lattice
from support.lexicographic import gauge_to_lexicographic

LATTICE = Lattice((4, 2, 6, 4))
PATHS = Paths(one=0.31, three=-0.17, five=0.057, seven=0.0131, lepage=-0.083)


def along(links, path):
    """Product of lexicographic links along `path`: +d is a step in direction d - 1, -d a step back."""
    result, here = np.eye(3), np.zeros(4, int)
    for step in path:
        mu = abs(step) - 1
        here[mu] -= step < 0
        link = np.roll(links[..., mu, :, :], tuple(-here[::-1]), axis=(0, 1, 2, 3))
        result = result @ (link if step > 0 else link.conj().swapaxes(-1, -2))
        here[mu] += step > 0
    return result


def fat_by_definition(links, paths, mu):
    others = [nu + 1 for nu in range(4) if nu != mu]
    result = paths.one * along(links, [mu + 1])
    for length, coefficient in ((1, paths.three), (2, paths.five), (3, paths.seven)):
        for directions, signs in product(permutations(others, length), product((1, -1), repeat=length)):
            out = [sign * nu for nu, sign in zip(directions, signs, strict=True)]
            back = [-step for step in reversed(out)]
            result = result + coefficient * along(links, [*out, mu + 1, *back])
    for nu, sign in product(others, (1, -1)):
        out = [sign * nu] * 2
        result = result + paths.lepage * along(links, [*out, mu + 1, -out[0], -out[1]])
    return result


@pytest.fixture
def links(random_su3):
    return random_su3(53, 4, 2, LATTICE.half_volume)


def test_fat_links_are_the_sum_over_all_paths(backend, links):
    fat = fat_links(backend.xp.asarray(links), LATTICE, PATHS)
    found = gauge_to_lexicographic(as_numpy(fat), LATTICE)
    plain = gauge_to_lexicographic(links, LATTICE)
    for mu in range(4):
        assert abs(found[..., mu, :, :] - fat_by_definition(plain, PATHS, mu)).max() < 1e-14


def test_published_actions_are_their_paths(random_su3):
    """HISQ (arXiv:1004.0342) and asqtad (arXiv:hep-lat/9903032), path by path; U(3) by singular values."""
    lattice, eps, u0 = Lattice((2, 4, 2, 2)), -0.37, 0.8
    thin = random_su3(71, 4, 2, lattice.half_volume)
    plain = gauge_to_lexicographic(thin, lattice)

    def fattened(links, *coefficients):
        return np.stack([fat_by_definition(links, Paths(*coefficients), mu) for mu in range(4)], axis=-3)

    left, _, right = np.linalg.svd(fattened(plain, 1 / 8, 1 / 16, 1 / 64, 1 / 384))
    w = left @ right
    hisq = hisq_links(thin, lattice, boundary="periodic", naik_epsilon=eps)
    asqtad = asqtad_links(thin, lattice, boundary="periodic", u0=u0)
    of_asqtad = 5 / 8, 1 / (16 * u0**2), 1 / (64 * u0**4), 1 / (384 * u0**6), -1 / (16 * u0**4)
    for links, of, coefficients, naik in (
        (hisq, w, (1 + eps / 8, 1 / 16, 1 / 64, 1 / 384, -1 / 8), -(1 + eps) / 24),
        (asqtad, plain, of_asqtad, -1 / (24 * u0**2)),
    ):
        fat, long = (
            gauge_to_lexicographic(with_phases(each, lattice), lattice) for each in (links.fat, links.long)
        )
        np.testing.assert_allclose(fat, fattened(of, *coefficients), atol=1e-13)
        for mu in range(4):
            np.testing.assert_allclose(long[..., mu, :, :], naik * along(of, [mu + 1] * 3), atol=1e-13)


def test_long_links_are_three_links_in_a_row(backend, links):
    long = long_links(backend.xp.asarray(links), LATTICE, -0.7)
    found = gauge_to_lexicographic(as_numpy(long), LATTICE)
    plain = gauge_to_lexicographic(links, LATTICE)
    for mu in range(4):
        assert abs(found[..., mu, :, :] + 0.7 * along(plain, [mu + 1] * 3)).max() < 1e-14
