"""Heat bath: compiled sweeps against NumPy, distributions in closed form, plaquettes of the literature."""

import numba
import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.special import iv
from scipy.stats import kstest

from stages.base.errors import InputError
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.kernels import heatbath
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.kernels.reference import heatbath as reference
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.lattice.plaquette import link_statistics, plaquette

LATTICE = Lattice((4, 2, 6, 4))
KEY = (0x7D1F33A2, 0x01B2C5E9)


@pytest.fixture(autouse=True)
def one_thread():
    """Short parallel loops crawl on a machine whose other processors are busy."""
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(threads)


@pytest.fixture
def links(xp, random_su3):
    return xp.asarray(random_su3(71, 4, 2, LATTICE.half_volume))


@pytest.mark.parametrize("beta", [0.0, 0.4, 5.9, 200.0])
def test_heat_bath_is_the_reference(links, beta):
    expected = as_numpy(links).copy()
    for sweep in (3, 4):
        heatbath.heat_bath(links, LATTICE, beta, KEY, sweep)
        reference.heat_bath(expected, LATTICE, beta, KEY, sweep)
    assert abs(as_numpy(links) - expected).max() < 1e-11


@pytest.mark.parametrize("damage", [np.nan, complex(0, np.inf)])
def test_links_that_are_not_finite_are_named(links, damage):
    """The heat bath would look for an acceptable proposal for ever."""
    site = LATTICE.site(np.array([3, 1, 4, 2]))
    links[1, EVEN, site, 2, 0] = links[3, ODD, 5, 1, 1] = damage
    before = links.copy()
    message = r"^2 links .* not finite, the first in direction y at \(x, y, z, t\) = \(3, 1, 4, 2\)"
    with np.errstate(invalid="ignore"), pytest.raises(InputError, match=message):
        heatbath.heat_bath(links, LATTICE, 5.9, KEY, 3)
    assert np.array_equal(as_numpy(links), as_numpy(before), equal_nan=True)


def test_links_whose_staples_overflow_end_a_sweep(links):
    """They are finite, far from SU(3); the result is not finite, and is there."""
    links *= 1e120
    heatbath.heat_bath(links, LATTICE, 5.9, KEY, 3)
    assert not np.isfinite(as_numpy(links)).all()


def test_over_relaxation_is_the_reference(links):
    expected = as_numpy(links).copy()
    heatbath.over_relax(links, LATTICE)
    reference.over_relax(expected, LATTICE)
    assert abs(as_numpy(links) - expected).max() < 1e-10  # rounding is amplified where staples nearly cancel


@pytest.mark.parametrize("extents", [(2, 2, 2, 2), (2, 6, 4, 2), (10, 2, 2, 2)])
def test_smallest_lattices(xp, random_su3, extents):
    """Fewer sites than a warp has lanes, and neighbours that are the same on both sides."""
    lattice = Lattice(extents)
    expected = random_su3(72, 4, 2, lattice.half_volume)
    links = xp.asarray(expected.copy())
    heatbath.heat_bath(links, lattice, 5.8, KEY, 2)
    reference.heat_bath(expected, lattice, 5.8, KEY, 2)
    assert abs(as_numpy(links) - expected).max() < 1e-11


def test_over_relaxation_keeps_the_action_and_moves_far(links):
    for sweep in range(10):
        heatbath.heat_bath(links, LATTICE, 5.5, KEY, sweep)
    before, action = links.copy(), plaquette(as_numpy(links), LATTICE).total
    heatbath.over_relax(links, LATTICE)
    assert plaquette(as_numpy(links), LATTICE).total == pytest.approx(action, abs=1e-14)
    overlap = (before.conj() * links).sum((-2, -1)).real / 3
    assert overlap.mean() < 0.9


def test_links_stay_in_su3(links):
    for sweep in range(30):
        heatbath.heat_bath(links, LATTICE, 5.7, KEY, sweep)
        heatbath.over_relax(links, LATTICE)
        heatbath.over_relax(links, LATTICE)
    statistics = link_statistics(as_numpy(links))
    assert statistics.unitarity_deviation < 1e-14
    assert statistics.determinant_deviation < 1e-14


def test_staples_are_gauge_covariant_and_close_all_plaquettes(random_su3, transformed):
    links = random_su3(71, 4, 2, LATTICE.half_volume)

    def staples(field):
        return np.array(
            [[reference.staple_sum(field, LATTICE, mu, parity) for parity in (EVEN, ODD)] for mu in range(4)]
        )

    g = random_su3(73, 2, LATTICE.half_volume)
    before = staples(links)
    after = staples(transformed(links, g, LATTICE, 1))
    assert abs(after - transformed(before, g, LATTICE, 1)).max() < 1e-13
    closed = (links * before.conj()).sum().real  # every plaquette once for each of its four links
    assert closed == pytest.approx(4 * 18 * LATTICE.volume * plaquette(links, LATTICE).total, rel=1e-12)


def heat_bath_cdf(alpha):
    """Distribution function of h0 with density sqrt(1 - h0^2) exp(alpha h0), integrated in the angle."""
    angle = np.linspace(-np.pi / 2, np.pi / 2, 20001)
    density = np.cos(angle) ** 2 * np.exp(alpha * (np.sin(angle) - 1))
    cumulated = cumulative_trapezoid(density, angle, initial=0)
    return lambda h0: np.interp(np.arcsin(h0), angle, cumulated / cumulated[-1])


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0, 1.01, 3.0, 40.0])
def test_su2_elements_have_the_heat_bath_distribution(alpha):
    """Re tr/2, polar and azimuthal angle of h = g part / |part|, which are independent of each other."""
    rng = np.random.default_rng(int(1000 * alpha) + 5)
    norm, phase = 1.7, np.exp(0.4j)
    part = norm * np.array([[phase * 0.6, 0.8j], [0.8j, phase.conj() * 0.6]])
    count = 20000
    parts = np.broadcast_to(part, (count, 2, 2))
    g = reference.heat_bath_element(parts, alpha / (2 * norm), lambda attempt: rng.random((4, count)))
    h = g @ parts / norm
    h0, h3 = h[:, 0, 0].real, h[:, 0, 0].imag
    assert abs(np.linalg.det(g) - 1).max() < 1e-14
    assert kstest(h0, heat_bath_cdf(alpha)).pvalue > 1e-3
    assert kstest(h3 / np.sqrt(1 - h0**2), "uniform", args=(-1, 2)).pvalue > 1e-3
    assert kstest(np.angle(h[:, 0, 1]), "uniform", args=(-np.pi, 2 * np.pi)).pvalue > 1e-3
    assert abs(np.corrcoef([h0, h3, h[:, 0, 1].real, h[:, 0, 1].imag]) - np.eye(4)).max() < 0.03


def test_reproducible_from_seed_and_label(xp):
    def chain(seed, label):
        return thermalised(LATTICE, 5.8, seed, label, sweeps=3, overrelaxation=1, xp=xp)

    first = chain(11, "a")
    assert xp.array_equal(first, chain(11, "a"))
    for other in (chain(12, "a"), chain(11, "b")):
        assert abs(first - other).max() > 0.5


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads (NUMBA_NUM_THREADS)")
def test_number_of_threads_alters_no_bit(random_su3):
    links, results = random_su3(71, 4, 2, LATTICE.half_volume), []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        copy = links.copy()
        heatbath.heat_bath(copy, LATTICE, 6.0, KEY, 7)
        heatbath.over_relax(copy, LATTICE)
        results.append(copy)
    assert np.array_equal(*results)


def mean_plaquette(links, lattice, beta, sweeps, overrelaxation=1):
    """(mean, its error from ten blocks) of a chain that goes on from thermalised links."""
    history = []
    for sweep in range(sweeps):
        heatbath.heat_bath(links, lattice, beta, KEY, sweep)
        for _ in range(overrelaxation):
            heatbath.over_relax(links, lattice)
        history.append(plaquette(as_numpy(links), lattice).total)
    blocks = np.mean(np.reshape(history, (10, -1)), axis=1)
    return blocks.mean(), blocks.std(ddof=1) / np.sqrt(10)


def one_plaquette_mean(beta):
    """<Re tr U / 3> of one SU(3) matrix of weight exp(beta/3 Re tr U): d ln Z / d beta, Bessel functions."""

    def log_z(b):
        orders = np.arange(3)[:, None] - np.arange(3) + np.arange(-12, 13)[:, None, None]
        return np.log(np.linalg.det(iv(orders, b / 3)).sum())

    return (log_z(beta + 1e-4) - log_z(beta - 1e-4)) / 2e-4


def test_strong_coupling(xp):
    """To O(beta^4) a plaquette is alone with its weight: beta/18 + beta^2/216 + ..., here summed up."""
    lattice, beta = Lattice((6, 6, 6, 6)), 0.9
    assert one_plaquette_mean(0.01) == pytest.approx(0.01 / 18 + 0.01**2 / 216, rel=1e-5)
    links = thermalised(lattice, beta, 4711, "strong", 5, 1, xp=xp)
    mean, error = mean_plaquette(links, lattice, beta, sweeps=60)
    assert error < 6e-4
    assert abs(mean - one_plaquette_mean(beta)) < 4 * error


def test_weak_coupling(xp):
    """Two loops of lattice perturbation theory: <P> = 1 - 2/beta - 1.2208/beta^2."""
    lattice, beta = Lattice((4, 4, 4, 4)), 400.0
    ordered = xp.tile(xp.eye(3, dtype=complex), (4, 2, lattice.half_volume, 1, 1))
    mean_plaquette(ordered, lattice, beta, sweeps=30)
    mean, error = mean_plaquette(ordered, lattice, beta, sweeps=50)
    assert abs(mean - (1 - 2 / beta - 1.2208 / beta**2)) < 4 * error + 2 / (beta * lattice.volume)


@pytest.mark.slow
def test_plaquette_at_beta_6(xp):
    lattice = Lattice((8, 8, 8, 8))
    links = thermalised(lattice, 6.0, 4713, "short", sweeps=40, overrelaxation=1, xp=xp)
    mean, error = mean_plaquette(links, lattice, 6.0, sweeps=80)
    assert error < 8e-4
    assert abs(mean - 0.5937) < 4 * error


@pytest.mark.slow
def test_plaquette_at_beta_6_on_a_large_lattice(xp):
    lattice = Lattice((12, 12, 12, 12))
    links = thermalised(lattice, 6.0, 4715, "long", sweeps=60, overrelaxation=2, xp=xp)
    mean, error = mean_plaquette(links, lattice, 6.0, sweeps=300, overrelaxation=2)
    assert error < 1.2e-4
    assert abs(mean - 0.5937) < 4 * error


@pytest.mark.parametrize(
    ("beta", "sweeps", "overrelaxation"),
    [(0.0, 1, 1), (-6.0, 1, 1), (np.nan, 1, 1), (6.0, 0, 1), (6.0, 1, -1)],
)
def test_bad_input_is_named(beta, sweeps, overrelaxation):
    with pytest.raises(InputError, match=r"must be .* got"):
        thermalised(LATTICE, beta, 5, "a", sweeps, overrelaxation)
