"""Dense oracles on tiny lattices, and gauge fields to try them on."""

from dataclasses import dataclass, field

import numpy as np

from stages.lqcd.dirac.full_lattice import StaggeredOperator
from stages.lqcd.dirac.staggered import SquaredDslash
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.solution import Solution, SolveStatus
from stages.lqcd.solvers.space import Space
from support.matrices import matrix_of, random_su3

TINY, SMALL = Lattice((4, 4, 4, 4)), Lattice((4, 2, 2, 4))


def random_links(lattice, seed, roughness=0.4):
    """SU(3) links exp(i H) ``[mu, parity, site, 3, 3]``, H of entries about `roughness`."""
    return random_su3(np.random.default_rng(seed), 4, 2, lattice.half_volume, size=roughness)


def dense_matrix(operator):
    """The matrix of a linear operator on fields ``[*shape, N]``."""
    return matrix_of(operator.apply, operator.shape)


@dataclass(frozen=True)
class DenseSolver:
    """Solves by the dense inverse, kept per mass and parity; stands in for an iterative solver."""

    inverses: dict = field(default_factory=dict)
    relative_error: float = 0.0
    """e of a sloppy solver: x = A^-1 (1 - e/5 + e K) b with a fixed random K of norm about 1."""

    def solve(self, A, b, x0=None, **options):
        key = (A.mass, A.parity)
        if key not in self.inverses:
            inverse = np.linalg.inv(dense_matrix(A))
            noise = np.random.default_rng(6021).normal(size=inverse.shape) / np.sqrt(len(inverse))
            error = self.relative_error * (noise - np.eye(len(inverse)) / 5)
            self.inverses[key] = inverse + inverse @ error
        x = (self.inverses[key] @ b.reshape(-1, b.shape[-1])).reshape(b.shape)
        residual = np.linalg.norm((b - A.apply(x)).reshape(-1, b.shape[-1]), axis=0)
        residual /= np.linalg.norm(b.reshape(-1, b.shape[-1]), axis=0)
        return Solution(x, SolveStatus.CONVERGED, 1, residual, residual[None], b.shape[-1], 0.0)


def dense_propagator(dslash, mass):
    """M^-1 of M = 2 m + D as ``[parity, site, colour, parity, site, colour]``."""
    operator = StaggeredOperator(dslash, mass)
    return np.linalg.inv(dense_matrix(operator)).reshape(*operator.shape, *operator.shape)


def hop_traces(links, propagator, lattice):
    """tr X_mu(x) G(x + mu, x) and tr X_mu(x)^dag G(x, x + mu), G = D (4 m^2 - D^2)^-1, ``[mu, t]``."""
    forward, backward = np.zeros((2, 4, lattice.time_extent), complex)
    for parity in (EVEN, ODD):
        t = lattice.coordinates(parity)[:, 3]
        for mu in range(4):
            x, there, link = np.arange(len(t)), lattice.neighbour(parity, mu, 1), links[mu, parity]
            # D commutes with (4 m^2 - D^2)^-1, and M^-1 = (2 m - D) (4 m^2 - D^2)^-1.
            ahead = np.einsum("xab,xba->x", link, propagator[1 - parity, there, :, parity, x])
            back = np.einsum("xba,xba->x", link.conj(), propagator[parity, x, :, 1 - parity, there])
            np.add.at(forward[mu], t, -ahead)
            np.add.at(backward[mu], t, -back)
    return forward, backward


def dense_spectrum(dslash):
    """Eigenvalues and eigenvectors of -D_eo D_oe."""
    return np.linalg.eigh(dense_matrix(SquaredDslash(dslash, EVEN)))


def dense_deflation(dslash, spectrum, count, rotated=False):
    """The lowest `count` eigenvectors, by dense diagonalisation.

    `rotated` mixes them and leaves them neither orthogonal nor normalised; they span the same space.
    """
    vectors = spectrum[1][:, :count]
    if rotated:
        mixing = 0.1 * np.random.default_rng(8).normal(size=(count, count)) * np.exp(1j)
        vectors = vectors @ (np.eye(count) + mixing)
    vectors = np.ascontiguousarray(vectors).reshape(-1, 3, count)
    return StaggeredSpace(dslash, Space.measured(SquaredDslash(dslash, EVEN), vectors))
