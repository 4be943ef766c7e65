"""Low modes and what they leave, against the exact trace of dense inverses on 4^4."""

import numpy as np
import pytest
from dense import TINY, DenseSolver, dense_deflation, dense_spectrum, random_links

from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.estimators.exact import exact_loops
from stages.lqcd.estimators.low_modes import low_mode_current, low_mode_density, mode_currents
from stages.lqcd.estimators.stochastic import stochastic_loops
from stages.lqcd.estimators.trace import CurrentLinks, LoopTrace
from stages.lqcd.gauge.hisq import hisq_links, naive_links
from stages.lqcd.noise import Dilution, noise_vectors
from workflows.certification.fields import unit_links

pytestmark = pytest.mark.usefixtures("reference_kernels")

MASS = 0.05
ALL = 3 * TINY.half_volume
MAKE = {
    "naive": lambda links: naive_links(links, TINY, boundary="antiperiodic"),
    "hisq": lambda links: hisq_links(links, TINY, boundary="antiperiodic", naik_epsilon=0.0),
}


@pytest.fixture(scope="module", params=["naive", "hisq"])
def dslash(request):
    return StaggeredDslash(MAKE[request.param](random_links(TINY, 3301, 0.8)))


@pytest.fixture(scope="module")
def spectrum(dslash):
    return dense_spectrum(dslash)


@pytest.fixture(scope="module")
def exact(dslash, solver):
    return exact_loops(trace_of(dslash, solver), np, width=192)


@pytest.fixture(scope="module")
def solver(dslash):
    return DenseSolver()


def trace_of(dslash, solver, deflation=None):
    return LoopTrace(dslash, CurrentLinks(dslash.links), MASS, solver, deflation)


def low_part(dslash, modes, mass=MASS):
    """(current, density) of the modes at one mass."""
    currents = mode_currents(dslash, CurrentLinks(dslash.links), modes.even)
    assert currents.residual.max() < 1e-10
    return (
        low_mode_current(currents.eigenvalue, currents.current, mass),
        low_mode_density(currents.eigenvalue, mass, TINY.volume),
    )


def test_all_modes_are_the_exact_trace(dslash, spectrum, exact):
    current, density = low_part(dslash, dense_deflation(dslash, spectrum, ALL))
    scale = np.abs(exact.current).max()
    assert scale > 0.1
    assert np.abs(current - exact.current[0]).max() < 1e-10 * scale
    assert np.allclose(density, exact.density[0], rtol=1e-11)


@pytest.mark.parametrize("count", [1, 21])
def test_low_part_and_exact_trace_of_the_remainder_add_up(dslash, solver, spectrum, exact, count):
    modes = dense_deflation(dslash, spectrum, count)
    current, density = low_part(dslash, modes)
    rest = exact_loops(trace_of(dslash, solver, modes), np, width=192)
    scale = np.abs(exact.current).max()
    assert np.abs(current).max() > 1e-3 * scale
    assert np.abs(current + rest.current[0] - exact.current[0]).max() < 1e-10 * scale
    assert np.allclose(density + rest.density[0], exact.density[0], rtol=1e-11)


def test_vectors_of_the_same_span_give_the_same_low_part(dslash, spectrum):
    """Ritz pairs of mixed vectors that are not orthonormal: rounding of stored vectors is such a mixing."""
    plain, mixed = (
        low_part(dslash, dense_deflation(dslash, spectrum, 18, rotated)) for rotated in (False, True)
    )
    assert np.allclose(mixed[0], plain[0], rtol=0, atol=1e-10 * np.abs(plain[0]).max())
    assert np.allclose(mixed[1], plain[1], rtol=1e-10)


def test_low_part_of_each_mode_by_the_formula(dslash, spectrum):
    """One mode, one time slice and direction with everything spelt out, the odd partner made explicitly."""
    modes, mu, t = dense_deflation(dslash, spectrum, 3), 2, 1
    currents = mode_currents(dslash, CurrentLinks(dslash.links), modes.even)
    v = np.ascontiguousarray(modes.even.vectors[..., 1:2])
    w = dslash.apply_to(1, v) / np.sqrt(modes.even.eigenvalues[1])
    expected = 0.0
    for parity, field in ((0, v), (1, w)):
        hopped, neighbour = dslash.apply_to(1 - parity, field), TINY.neighbour(parity, mu, 1)
        for x in np.flatnonzero(TINY.coordinates(parity)[:, 3] == t):
            link = dslash.links.thin()[mu, parity, x]
            expected -= np.vdot(field[x, :, 0], link @ hopped[neighbour[x], :, 0]).imag
    assert np.isclose(currents.current[1, mu, t], expected, rtol=1e-8, atol=1e-13)


@pytest.fixture(scope="module")
def free():
    """The periodic free field: B has 3 * 8 zero modes per parity."""
    return StaggeredDslash(naive_links(unit_links(TINY, np), TINY, boundary="periodic"))


def test_zero_modes_of_the_free_field_have_no_partner(free):
    """They carry no current."""
    modes = dense_deflation(free, dense_spectrum(free), 24)
    currents = mode_currents(free, CurrentLinks(free.links), modes.even)
    assert np.abs(currents.eigenvalue).max() < 1e-12
    assert np.abs(currents.current).max() < 1e-12
    even, odd = low_mode_density(currents.eigenvalue, MASS, TINY.volume)
    assert odd == 0 and np.isclose(even, 24 / (TINY.volume * MASS), rtol=1e-9)


@pytest.mark.parametrize("count", [24, 60])
def test_low_part_and_remainder_add_up_where_modes_vanish(free, count):
    solver, modes = DenseSolver(), dense_deflation(free, dense_spectrum(free), count)
    exact = exact_loops(trace_of(free, solver), np, width=192)
    rest = exact_loops(trace_of(free, solver, modes), np, width=192)
    current, density = low_part(free, modes)
    assert np.abs(current + rest.current[0] - exact.current[0]).max() < 1e-12
    assert np.allclose(density + rest.density[0], exact.density[0], rtol=1e-11)


@pytest.mark.parametrize("options", [{}, {"color": True}, {"displacement": 2}])
def test_deflated_noise_is_unbiased_in_any_dilution(dslash, solver, spectrum, options):
    """Each noise vector deviates from the exact remainder by honest noise only."""
    modes, dilution = dense_deflation(dslash, spectrum, 30), Dilution.parse(options)
    rest = exact_loops(trace_of(dslash, solver, modes), np, width=192)
    noise = [noise_vectors(TINY, parity, "conf", 81, range(60), "z2") for parity in (0, 1)]
    loops = stochastic_loops(trace_of(dslash, solver, modes), noise, dilution, width=2_000)
    for values, expected in ((loops.current, rest.current[0]), (loops.density, rest.density[0])):
        pull = (values.mean(axis=0) - expected) / (values.std(axis=0, ddof=1) / np.sqrt(60))
        assert np.mean(pull**2) < 1 + 6 * np.sqrt(2 / expected.size)


@pytest.mark.parametrize("kind", ["z2", "u1"])
def test_fully_diluted_deflated_noise_is_the_exact_remainder(dslash, solver, spectrum, kind):
    """A complete orthogonal set of sources leaves no noise, also behind the projection."""
    modes = dense_deflation(dslash, spectrum, 12)
    rest = exact_loops(trace_of(dslash, solver, modes), np, width=192)
    noise = [noise_vectors(TINY, parity, "conf", 82, (4,), kind) for parity in (0, 1)]
    full = stochastic_loops(trace_of(dslash, solver, modes), noise, Dilution(color=True, displacement=4), 384)
    assert np.abs(full.current - rest.current).max() < 1e-11 * np.abs(rest.current).max()
    assert np.allclose(full.density, rest.density, rtol=1e-11)


def test_deflation_lowers_the_variance_of_a_light_quark(dslash, solver, spectrum):
    noise = [noise_vectors(TINY, parity, "conf", 83, range(40), "z2") for parity in (0, 1)]
    variance = []
    for modes in (None, dense_deflation(dslash, spectrum, 10), dense_deflation(dslash, spectrum, 60)):
        loops = stochastic_loops(trace_of(dslash, solver, modes), noise, Dilution(), 10_000)
        variance.append(loops.current.var(axis=0).mean())
    assert variance[2] < variance[1] < 0.8 * variance[0]
