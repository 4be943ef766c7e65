"""The truncated solver method with deflated solves: sloppy and fine stay an unbiased pair."""

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

pytestmark = pytest.mark.usefixtures("reference_kernels")

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
