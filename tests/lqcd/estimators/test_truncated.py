"""The truncated solver combination: limits, bias, and whether the quoted error is the spread."""

import numpy as np
import pytest
from dense import SMALL, dense_matrix, random_links

from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.estimators.trace import CurrentLinks, LoopTrace
from stages.lqcd.estimators.truncated import Piece, plain_estimate, truncated_estimate, truncated_pieces
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.space import Space
from support.refusals import refuses

pytestmark = pytest.mark.usefixtures("reference_kernels")


def draw(rng, vectors, fine_on, bias=0.5, noise=0.1):
    """Fine values around 2, sloppy ones with a bias and a little noise of their own."""
    fine = 2.0 + rng.normal(size=vectors)
    sloppy = Piece(tuple(range(vectors)), fine + bias + noise * rng.normal(size=vectors))
    return fine, truncated_pieces(sloppy, Piece(tuple(fine_on), fine[list(fine_on)]))


def test_with_every_vector_fine_it_is_the_fine_estimate():
    fine, pieces = draw(np.random.default_rng(21), 7, range(7))
    estimate, plain = truncated_estimate(*pieces), plain_estimate(fine)
    assert np.isclose(estimate.mean, plain.mean, rtol=1e-14)
    assert np.isclose(estimate.error, plain.error, rtol=1e-13)


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_unbiased_and_its_quoted_error_is_its_spread(noise):
    rng = np.random.default_rng(23)
    draws = [truncated_estimate(*draw(rng, 12, (0, 1, 2), noise=noise)[1]) for _ in range(4000)]
    means, errors = np.array(draws).T
    assert abs(means.mean() - 2.0) < 4 * means.std() / np.sqrt(4000)
    assert np.isclose(np.sqrt(np.mean(errors**2)), means.std(), rtol=4 * np.sqrt(1 / 4000))


def test_refusals():
    _, (sloppy, correction) = draw(np.random.default_rng(24), 4, (1,))
    refuses("at least 2 noise vectors, got 1", truncated_estimate, sloppy, correction)
    refuses(r"noise vectors \[9\] are missing", truncated_pieces, sloppy, Piece((1, 9), np.zeros(2)))
    with pytest.raises(ValueError, match="as many distinct noise numbers"):
        Piece((1, 1), np.zeros(2))


MASS, VECTORS, FINE, DEFLATED = 0.05, 96, 32, 12


@pytest.fixture(scope="module")
def dslash():
    links = hisq_links(random_links(SMALL, 3301), SMALL, boundary="antiperiodic", naik_epsilon=0.0)
    return StaggeredDslash(links)


@pytest.fixture(scope="module")
def spectrum(dslash):
    return np.linalg.eigh(dense_matrix(SquaredDslash(dslash)))


@pytest.mark.parametrize("rounding", [np.complex128, np.complex64])
@pytest.mark.parametrize("parity", [EVEN, ODD])
@pytest.mark.parametrize("method", [BatchedCG, BlockCGrQ])
def test_sloppy_and_fine_are_an_unbiased_pair(dslash, spectrum, method, parity, rounding):
    """The sloppy trace alone misses the exact one by many errors, the pair does not."""
    values, vectors = spectrum
    lowest = vectors[:, :DEFLATED].reshape(SMALL.half_volume, 3, DEFLATED).astype(rounding)
    deflation = StaggeredSpace(dslash, Space.measured(SquaredDslash(dslash), lowest))
    noise = noise_vectors(SMALL, parity, "pair", 3307, range(VECTORS), "z2")
    exact = 4 * MASS / SMALL.volume * (1 / (values + 4 * MASS**2)).sum()

    def densities(tolerance, columns):
        solver = DeflatedSolver(method(tolerance), deflation)
        trace = LoopTrace(dslash, CurrentLinks(dslash.links, "thin"), MASS, solver)
        blocks = [np.ascontiguousarray(noise[..., n : n + 16]) for n in range(0, columns, 16)]
        return np.concatenate([trace.contract(parity, block).density for block in blocks])

    sloppy = Piece(tuple(range(VECTORS)), densities(0.3, VECTORS))
    fine = Piece(tuple(range(FINE)), densities(1e-9, FINE))
    mean, error = truncated_estimate(*truncated_pieces(sloppy, fine))
    assert abs(mean - exact) < 4 * error
    correction = plain_estimate(truncated_pieces(sloppy, fine)[1].values)
    assert abs(correction.mean) > 4 * correction.error
