"""Stochastic loops against the exact trace: full dilution, independence of the block, and honest errors."""

from functools import cache

import numpy as np
import pytest
from dense import TINY, DenseSolver, random_links

from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.estimators.exact import exact_loops
from stages.lqcd.estimators.stochastic import stochastic_loops
from stages.lqcd.estimators.trace import CurrentLinks, LoopTrace
from stages.lqcd.estimators.truncated import Piece, plain_estimate, truncated_estimate, truncated_pieces
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.noise import Dilution, noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG

pytestmark = pytest.mark.usefixtures("reference_kernels")


@cache
def links():
    return hisq_links(random_links(TINY, 4711), TINY, boundary="antiperiodic", naik_epsilon=0.0)


@cache
def trace(error=0.0):
    """The loops' trace by dense solves with this relative error."""
    return LoopTrace(StaggeredDslash(links()), CurrentLinks(links()), 0.1, DenseSolver(relative_error=error))


@cache
def exact():
    return exact_loops(trace(), np, width=192)


def noise(seed, indices, kind="z2", label="conf.17"):
    return [noise_vectors(TINY, parity, label, seed, indices, kind) for parity in (0, 1)]


@pytest.mark.parametrize("kind", ["z2", "z4", "u1"])
def test_full_dilution_is_the_exact_trace_for_any_noise_vector(kind):
    """Every site and colour in a subset of its own: |eta|^2 = 1 leaves no noise at all."""
    loops = stochastic_loops(trace(), noise(5, (3,), kind), Dilution(color=True, displacement=4), width=100)
    scale = np.abs(exact().current).max()
    assert np.abs(loops.current - exact().current).max() < 1e-12 * scale
    assert np.allclose(loops.density, exact().density, rtol=1e-12)


@pytest.mark.parametrize("options", [{}, {"color": True}, {"displacement": 2, "time": "full"}])
def test_blocks_and_chunks_do_not_alter_the_loops(options):
    """One noise vector at a time in blocks of 5, and all at once in one block: the same, vector by vector."""
    dilution = Dilution.parse(options)
    together = stochastic_loops(trace(), noise(6, range(4)), dilution, width=1000)
    for index in range(4):
        alone = stochastic_loops(trace(), noise(6, (index,)), dilution, width=5)
        assert np.allclose(alone.current[0], together.current[index], rtol=0, atol=1e-13)
        assert np.allclose(alone.density[0], together.density[index], rtol=1e-13)


def test_each_loop_is_the_sum_over_subsets_by_the_formula():
    """J = sum_s sum_p -Im eta_s^dag X z_s with everything spelt out for one time slice and direction."""
    dilution = Dilution(color=True)
    source = noise(7, (2,))
    exact()  # makes the inverses
    expected = 0.0
    for parity in (0, 1):
        neighbour, t = TINY.neighbour(parity, 1, 1), TINY.coordinates(parity)[:, 3]
        for colour in range(3):
            eta = source[parity] * (np.arange(3) == colour)[:, None]
            y = (trace().solver.inverses[0.1, parity] @ eta.reshape(-1, 1)).reshape(eta.shape)
            z = trace().dslash.apply_to(1 - parity, y)
            for x in np.flatnonzero(t == 3):
                expected -= np.vdot(eta[x, :, 0], links().thin()[1, parity, x] @ z[neighbour[x], :, 0]).imag
    loops = stochastic_loops(trace(), source, dilution, width=2)
    assert np.isclose(loops.current[0, 1, 3], expected, rtol=1e-11)


def test_progress_counts_blocks_to_the_end():
    reports = []
    stochastic_loops(
        trace(), noise(8, (0, 1)), Dilution(displacement=2), 6, lambda *report: reports.append(report)
    )
    assert reports == [(done, 6) for done in range(1, 7)]


def measure(seed, vectors, fine_vectors, kind, dilution, truncated=None):
    """(plain, truncated) estimates of current and density of one seed."""
    source = noise(seed, range(vectors), kind)
    fine = stochastic_loops(trace(), source, dilution, width=10_000)
    sloppy = stochastic_loops(truncated or trace(0.2), source, dilution, width=16)
    estimates = []
    for field in ("current", "density"):
        corrected = Piece(tuple(range(fine_vectors)), getattr(fine, field)[:fine_vectors])
        pieces = truncated_pieces(Piece(tuple(range(vectors)), getattr(sloppy, field)), corrected)
        estimates.append((plain_estimate(getattr(fine, field)), truncated_estimate(*pieces)))
    return estimates


def check_errors(seeds, **settings):
    """Both estimators of current and density: unbiased over the seeds, and spread as the quoted errors say.

    The quoted variances are unbiased, so chi^2 = sum (estimate - exact)^2 / <error^2> over n seeds and k
    values is n k, give or take sqrt(2 n k) for independent values; neighbouring ones are correlated a
    little.
    """
    results = [measure(seed, **settings) for seed in range(50, 50 + seeds)]
    for field, wanted in enumerate((exact().current[0], exact().density[0])):
        for estimator in (0, 1):
            estimates = [result[field][estimator] for result in results]
            deviations = np.array([estimate.mean for estimate in estimates]) - wanted
            variance = np.mean([estimate.error**2 for estimate in estimates], axis=0)
            pull_of_mean = deviations.mean(axis=0) / np.sqrt(variance / seeds)
            chi_squared = np.mean(deviations**2 / variance)
            assert np.mean(pull_of_mean**2) < 1 + 6 * np.sqrt(2 / wanted.size)
            assert abs(chi_squared - 1) < 6 * np.sqrt(2 / (seeds * wanted.size))


@pytest.mark.slow
def test_errors_of_plain_and_truncated_estimates():
    check_errors(seeds=40, vectors=12, fine_vectors=6, kind="z2", dilution=Dilution(displacement=2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["z2", "z4", "u1", "gaussian"])
@pytest.mark.parametrize("options", [{}, {"displacement": 2}, {"color": True, "time": 2}])
def test_errors_over_many_seeds(kind, options):
    check_errors(seeds=100, vectors=16, fine_vectors=4, kind=kind, dilution=Dilution.parse(options))


@pytest.mark.slow
@pytest.mark.parametrize("solver", [BatchedCG(0.1), BlockCGrQ(0.1)])
def test_errors_with_conjugate_gradients_stopped_early(solver):
    """The real thing: residuals of 10 % in the sloppy solves, 16 right-hand sides at a time."""
    truncated = LoopTrace(trace().dslash, trace().current_links, 0.1, solver)
    settings = {"vectors": 8, "fine_vectors": 3, "kind": "z2", "dilution": Dilution(displacement=2)}
    check_errors(seeds=60, **settings, truncated=truncated)


@pytest.mark.parametrize("seeds", [25, pytest.param(60, marks=pytest.mark.slow)])
def test_sloppy_solves_alone_are_biased_and_the_correction_removes_it(seeds):
    """Over these seeds the sloppy mean is off by many errors of the mean, the truncated one is not."""
    sloppy, truncated = [], []
    for seed in range(200, 200 + seeds):
        source = noise(seed, range(8))
        dilution = Dilution(displacement=2)
        rough = stochastic_loops(trace(0.2), source, dilution, width=10_000).density
        fine = stochastic_loops(trace(), [part[:, :, :3] for part in source], dilution, width=10_000).density
        sloppy.append(rough.mean(axis=0))
        pieces = truncated_pieces(Piece(tuple(range(8)), rough), Piece((0, 1, 2), fine))
        truncated.append(truncated_estimate(*pieces).mean)
    for draws, biased in ((np.array(sloppy), True), (np.array(truncated), False)):
        pull = (draws.mean(axis=0) - exact().density[0]) / (draws.std(axis=0, ddof=1) / np.sqrt(seeds))
        assert (np.abs(pull).max() > 6) == biased
        assert biased or np.abs(pull).max() < 4
