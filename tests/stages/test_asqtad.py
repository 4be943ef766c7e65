"""Asqtad in the chain of stages: MILC's own links and solutions, and loops from the dense operator."""

import numpy as np
import pytest
from settings import grouped

from pipeline import At
from stages.base.errors import InputError
from stages.ensemble.configuration import file_configuration, heatbath_configuration
from stages.ensemble.staggered_operator import ACTIONS, asqtad_operator
from stages.loops.current_loops import current_loops, exact_loops
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.lattice.formats import read_field
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.even_odd import EvenOdd
from workflows.certification.fields import unit_links

AT = At(config="asqtad.1", noise=(3,))
MASS = 0.09


@pytest.fixture(scope="module")
def gauge():
    options = {"beta": 6.1, "seed": 83, "sweeps": 6, "overrelaxation": 1}
    return heatbath_configuration(at=AT, extents=(4, 4, 4, 4), **options)


@pytest.fixture(scope="module")
def dslash(gauge):
    return asqtad_operator(gauge, at=AT, boundary="antiperiodic", u0=0.88)


def operator_of_a_file(reference_data, entry):
    path = reference_data / entry["files"][0]
    gauge = file_configuration(at=AT, path=path, extents=(8, 8, 8, 8))
    return asqtad_operator(gauge, at=AT, boundary="antiperiodic", u0=entry["values"]["u0"])


def test_stage_makes_the_links_of_milc(reference_data, expected):
    entry = expected["asqtad:fat"]
    links = operator_of_a_file(reference_data, entry).links
    for made, name in ((links.fat, entry["files"][1]), (links.long, entry["files"][2])):
        values = read_field(reference_data / name).values
        assert np.linalg.norm(made - values) <= entry["rtol"] * np.linalg.norm(values)


def test_solutions_of_the_stage_are_those_of_milc(reference_data, expected):
    entry = expected["asqtad:Minv"]
    operator = StaggeredOperator(operator_of_a_file(reference_data, entry), entry["values"]["mass"])
    b, x = (read_field(reference_data / name).values.astype(complex) for name in entry["files"][1:3])
    solution = EvenOdd(BatchedCG(1e-10), StaggeredSchur).solve(operator, b).x
    assert np.linalg.norm(solution - x) <= entry["rtol"] * np.linalg.norm(x)


def dense_dslash(links):
    """D by its formula, ``[parity, site, colour, parity, site, colour]``."""
    lattice = links.lattice
    shape = (2, lattice.half_volume, 3)
    matrix = np.zeros((*shape, *shape), complex)
    for here in (EVEN, ODD):
        sites, there = np.arange(lattice.half_volume), 1 - here
        for mu in range(4):
            for hops, field in ((1, links.fat), (3, links.long)):
                ahead, behind = (lattice.neighbour(here, mu, sign * hops) for sign in (1, -1))
                back = field[mu, there][behind].conj().swapaxes(-1, -2)
                np.add.at(matrix, (here, sites, slice(None), there, ahead), field[mu, here])
                np.add.at(matrix, (here, sites, slice(None), there, behind), -back)
    return matrix


@pytest.mark.slow
def test_exact_loops_are_the_traces_of_the_dense_inverse(dslash):
    """J_mu(t) = - sum_x Im tr[U_mu(x) {D (4 m^2 - D^2)^-1}(x+mu, x)], phases and signs in thin links U."""
    links, lattice = dslash.links, dslash.links.lattice
    dense = dense_dslash(links)
    D = dense.reshape(6 * lattice.half_volume, -1)
    assert np.abs(D + D.conj().T).max() < 1e-13
    propagator = (D @ np.linalg.inv(4 * MASS**2 * np.eye(len(D)) - D @ D)).reshape(dense.shape)
    loops = exact_loops(dslash, at=AT, mass=MASS, **grouped(tolerance=1e-12))
    current = np.zeros((4, lattice.time_extent))
    sites = np.arange(lattice.half_volume)
    for mu in range(4):
        for parity in (EVEN, ODD):
            ahead = lattice.neighbour(parity, mu, 1)
            hop = propagator[1 - parity, ahead, :, parity, sites]
            trace = np.einsum("xab,xba->x", links.thin()[mu, parity], hop).imag
            current[mu] -= trace.reshape(lattice.time_extent, -1).sum(axis=1)
    assert np.abs(current).max() > 1e-2
    assert np.abs(loops.current - current).max() < 1e-9 * np.abs(current).max()


@pytest.mark.slow
def test_fully_diluted_noise_gives_the_exact_loops(dslash):
    solve = {"tolerance": 1e-11, "precision": "double", "block": 8}
    exact = exact_loops(dslash, at=AT, mass=MASS, **grouped(**solve))
    options = {"seed": 17, "noise": "z2", "dilution": {"color": True, "displacement": 4}}
    noisy = current_loops(dslash, at=AT, mass=MASS, **grouped(**solve, **options))
    assert np.abs(noisy.current[0, 0] - exact.current).max() < 1e-8 * np.abs(exact.current).max()


def test_u0_is_no_mere_factor_of_the_mass(gauge, dslash):
    other = asqtad_operator(gauge, at=AT, boundary="antiperiodic", u0=1.0)
    ratio = other.links.fat[0, 0, :, 0, 0] / dslash.links.fat[0, 0, :, 0, 0]
    assert np.ptp(ratio.real) > 1e-2
    with pytest.raises(InputError, match="u0 must be positive"):
        asqtad_operator(gauge, at=AT, boundary="antiperiodic", u0=-0.9)


@pytest.mark.parametrize("action", ["hisq", "asqtad", "naive"])
def test_free_links_of_every_action(action):
    """On free links the weights of one-hop and three-hop terms are those of the formulas."""
    options = {"hisq": {"naik_epsilon": -0.1}, "asqtad": {"u0": 0.9}, "naive": {}}[action]
    lattice = Lattice((4, 4, 4, 4))
    free = ACTIONS[action].links(unit_links(lattice, np), lattice, boundary="antiperiodic", **options)
    fat, long = {
        "hisq": (1 + 1 / 8 - 0.1 / 8, -0.9 / 24),
        "asqtad": (
            5 / 8 + 6 / 16 / 0.9**2 + 24 / 64 / 0.9**4 + 48 / 384 / 0.9**6 - 6 / 16 / 0.9**4,
            -1 / 24 / 0.9**2,
        ),
        "naive": (1.0, None),
    }[action]
    np.testing.assert_allclose(np.abs(free.fat[..., 0, 0]), fat, rtol=1e-13)
    assert (free.long is None) == (long is None)
    if long:
        np.testing.assert_allclose(np.abs(free.long[..., 0, 0]), abs(long), rtol=1e-13)
