"""The split-even difference of two masses: exact on complete sources, unbiased, less noise."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from dense import TINY, DenseSolver, dense_deflation, dense_spectrum, random_links

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.estimators.exact import exact_loops
from stages.lqcd.estimators.low_modes import low_mode_current, low_mode_density, mode_currents
from stages.lqcd.estimators.split_even import SplitEvenTrace
from stages.lqcd.estimators.stochastic import stochastic_loops
from stages.lqcd.estimators.trace import CurrentLinks, LoopTrace
from stages.lqcd.estimators.truncated import Piece, truncated_estimate, truncated_pieces
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.noise import Dilution, noise_vectors

pytestmark = pytest.mark.usefixtures("reference_kernels")

LIGHT, STRANGE = 0.04, 0.21
DIFFERENCE = 2
SOLVER = DenseSolver()


@cache
def links():
    return hisq_links(random_links(TINY, 3401, 0.8), TINY, boundary="antiperiodic", naik_epsilon=0.0)


@cache
def dslash():
    return StaggeredDslash(links())


def trace_of(deflation=None, solver=SOLVER):
    return SplitEvenTrace(
        *(LoopTrace(dslash(), CurrentLinks(links()), mass, solver, deflation) for mass in (LIGHT, STRANGE))
    )


@pytest.fixture(scope="module")
def exact():
    """current ``[flavour, mu, t]`` and density ``[flavour, parity]``, the last flavour by subtraction."""
    singles = [exact_loops(trace, np, 192) for trace in (trace_of().light, trace_of().strange)]
    return tuple(
        np.concatenate([a, b, a - b])
        for a, b in ((singles[0].current, singles[1].current), (singles[0].density, singles[1].density))
    )


@pytest.fixture(scope="module")
def modes():
    return dense_deflation(dslash(), dense_spectrum(dslash()), 24)


def test_a_complete_set_of_sources_gives_the_exact_difference_with_its_sign(exact):
    split = exact_loops(trace_of(), np, 192)
    for found, expected in zip(split, exact, strict=True):
        assert found[0].shape == expected.shape
        for flavour in range(3):
            scale = np.abs(expected[flavour]).max()
            assert scale > 1e-2
            assert np.abs(found[0, flavour] - expected[flavour]).max() < 1e-10 * scale


def test_low_part_of_the_difference_and_the_exact_remainder_add_up(exact, modes):
    rest = exact_loops(trace_of(modes), np, 192)
    low = mode_currents(dslash(), CurrentLinks(links()), modes.even)
    currents = [low_mode_current(low.eigenvalue, low.current, mass) for mass in (LIGHT, STRANGE)]
    densities = [low_mode_density(low.eigenvalue, mass, TINY.volume) for mass in (LIGHT, STRANGE)]
    for found, (light, strange), expected in zip(rest, (currents, densities), exact, strict=True):
        together = found[0] + np.stack([light, strange, light - strange])
        assert np.abs(together - expected).max() < 1e-9 * np.abs(expected).max()


@pytest.mark.parametrize("deflated", [False, True])
def test_unbiased_with_less_noise_than_the_plain_difference(modes, deflated):
    trace = trace_of(modes if deflated else None)
    expected = exact_loops(trace, np, 192)
    noise = [noise_vectors(TINY, parity, "conf", 71, range(120), "z2") for parity in (0, 1)]
    loops = stochastic_loops(trace, noise, Dilution(), 1000)
    for values, mean in zip(loops, expected, strict=True):
        pull = (values.mean(axis=0) - mean[0]) / (values.std(axis=0, ddof=1) / np.sqrt(120))
        assert np.mean(pull**2) < 1 + 6 * np.sqrt(2 / mean.size)
    plain = (loops.current[:, 0] - loops.current[:, 1]).var(axis=0).mean()
    assert loops.current[:, DIFFERENCE].var(axis=0).mean() < 0.5 * plain


def test_truncated_solves_of_the_difference_are_unbiased(exact):
    """Sloppy solves of both masses bias the split-even loops; fine - sloppy on a few vectors takes it off."""
    noise = [noise_vectors(TINY, parity, "conf", 73, range(96), "z2") for parity in (0, 1)]
    sloppy = stochastic_loops(trace_of(solver=DenseSolver(relative_error=0.2)), noise, Dilution(), 1000)
    fine = stochastic_loops(trace_of(), [part[..., :48] for part in noise], Dilution(), 1000)
    vectors = tuple(range(96))
    pieces = truncated_pieces(
        Piece(vectors, sloppy.density[:, DIFFERENCE]), Piece(vectors[:48], fine.density[:, DIFFERENCE])
    )
    truth = exact[1][DIFFERENCE]
    found = truncated_estimate(*pieces)
    assert np.all(np.abs(found.mean - truth) < 4 * found.error)
    rough = exact_loops(trace_of(solver=DenseSolver(relative_error=0.2)), np, 192)
    assert np.all(np.abs(rough.density[0, DIFFERENCE] - truth) > 0.05 * np.abs(truth))


def test_refuses_masses_of_different_links():
    other = replace(links())
    strange = LoopTrace(StaggeredDslash(other), CurrentLinks(other), STRANGE, SOLVER)
    with pytest.raises(InputError, match="only where both masses share their links: give them one naik_eps"):
        SplitEvenTrace(trace_of().light, strange)
