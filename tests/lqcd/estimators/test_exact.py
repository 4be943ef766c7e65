"""The exact trace against dense inverses, current conservation and the free field."""

import numpy as np
import pytest
from dense import SMALL, DenseSolver, dense_propagator, hop_traces, random_links

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.estimators.exact import exact_loops
from stages.lqcd.estimators.trace import CurrentLinks, LoopTrace, current_links
from stages.lqcd.gauge.hisq import asqtad_links, hisq_links, naive_links
from stages.lqcd.lattice.geometry import Lattice
from workflows.certification.fields import unit_links

pytestmark = pytest.mark.usefixtures("reference_kernels")

MASS = 0.11


def trace_of(links, choice="thin", mass=MASS):
    dslash = StaggeredDslash(links)
    return LoopTrace(dslash, CurrentLinks(links, choice), mass, DenseSolver())


@pytest.fixture(scope="module")
def naive():
    return naive_links(random_links(SMALL, 3101), SMALL, boundary="antiperiodic")


@pytest.fixture(scope="module")
def hisq():
    return hisq_links(random_links(SMALL, 3101), SMALL, boundary="antiperiodic", naik_epsilon=0.0)


@pytest.fixture(scope="module")
def asqtad():
    return asqtad_links(random_links(SMALL, 3101), SMALL, boundary="antiperiodic", u0=0.87)


@pytest.mark.parametrize(
    ("action", "choice"),
    [
        ("naive", "thin"),
        ("asqtad", "thin"),
        ("asqtad", "fat"),
        ("hisq", "thin"),
        ("hisq", "smeared"),
        ("hisq", "fat"),
    ],
)
def test_current_and_condensate_equal_those_of_the_dense_inverse(action, choice, request):
    links = request.getfixturevalue(action)
    trace = trace_of(links, choice)
    loops = exact_loops(trace, np, width=100)
    propagator = dense_propagator(trace.dslash, MASS)
    links = np.stack([trace.current_links.of(parity) for parity in (0, 1)], axis=1)
    forward, backward = hop_traces(links, propagator, SMALL)
    scale = np.abs(loops.current).max()
    assert scale > 1e-2
    assert np.abs(loops.current[0] + forward.imag).max() < 1e-12 * scale
    assert np.abs(loops.current[0] + (forward + backward).imag / 2).max() < 1e-12 * scale
    for parity in (0, 1):
        density = 2 / SMALL.volume * np.einsum("xcxc->", propagator[parity, :, :, parity]).real
        assert np.isclose(loops.density[0, parity], density, rtol=1e-12)


@pytest.mark.parametrize("boundary", ["periodic", "antiperiodic"])
@pytest.mark.parametrize("seed", [3102, 3103])
def test_naive_charge_is_conserved_on_every_configuration(seed, boundary):
    links = naive_links(random_links(SMALL, seed, roughness=0.8), SMALL, boundary=boundary)
    charge = exact_loops(trace_of(links), np, width=128).current[0, 3]
    assert np.abs(charge).max() > 1e-4
    assert np.ptp(charge) < 1e-12


def test_smeared_links_are_unitary_and_neither_thin_nor_fat(hisq):
    smeared = current_links(hisq, "smeared")
    product = smeared.conj().swapaxes(-1, -2) @ smeared
    assert np.abs(product - np.eye(3)).max() < 1e-12
    assert min(np.abs(smeared - other).max() for other in (hisq.thin(), hisq.fat)) > 0.1


def test_one_link_charge_of_hisq_is_not_conserved(hisq):
    charge = exact_loops(trace_of(hisq), np, width=128).current[0, 3]
    assert np.ptp(charge) > 1e-3 * np.abs(charge).max()


def test_free_condensate_is_the_sum_over_momenta():
    """-D^2 has eigenvalues 4 sum_mu sin^2 p_mu, so the density is (3/V) sum_p 2m / (4m^2 - D^2)."""
    lattice = Lattice((4, 2, 6, 4))
    links = naive_links(unit_links(lattice, np), lattice, boundary="antiperiodic")
    loops = exact_loops(trace_of(links), np, width=64)
    momenta = [2 * np.pi * (np.arange(n) + (mu == 3) / 2) / n for mu, n in enumerate(lattice.extents)]
    sines = sum(np.sin(p) ** 2 for p in np.meshgrid(*momenta))
    expected = 3 / lattice.volume * np.sum(2 * MASS / (4 * MASS**2 + 4 * sines))
    assert np.allclose(loops.density, expected, rtol=1e-12)
    assert np.abs(loops.current).max() < 1e-12


def test_refuses_large_lattices_other_links_and_empty_blocks(naive):
    with pytest.raises(InputError, match=r"takes 24576 solves on 8x8x8x16; it is for lattices of up to 1296"):
        lattice = Lattice((8, 8, 8, 16))
        exact_loops(trace_of(naive_links(unit_links(lattice, np), lattice, boundary="periodic")), np, width=8)
    with pytest.raises(
        InputError, match="the current's links must be one of thin, smeared, fat, got 'stout'"
    ):
        current_links(naive, "stout")
    with pytest.raises(InputError, match="this action has no smeared links for the current"):
        current_links(naive, "smeared")
    with pytest.raises(InputError, match="must be a whole number of at least 1, got 0"):
        exact_loops(trace_of(naive), np, width=0)
    with pytest.raises(InputError, match="mass of a staggered solve must be positive, got 0"):
        exact_loops(trace_of(naive, mass=0.0), np, width=8)
