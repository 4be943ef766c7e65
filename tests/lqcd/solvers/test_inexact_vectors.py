"""Block CGrQ deflated by vectors that carry an error takes no more iterations than without vectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash, StaggeredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.space import CorrectionSchedule, Space

ALLOWED = 1.05
ERRORS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
PRECISIONS = ("double", "double-single")


@dataclass(frozen=True)
class Field:
    """Operators of one thermalised configuration, and the lowest eigenvectors on its even sites."""

    lattice: Lattice
    dslash: StaggeredDslash
    vectors: NDArray[np.complex128]

    @classmethod
    def of(cls, lattice: Lattice, sweeps: int, vectors: int, block: int) -> Field:
        thin = thermalised(lattice, 5.7, 271, "inexact vectors", sweeps, 4)
        dslash = StaggeredDslash(hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0))
        return cls(lattice, dslash, BlockLanczos(vectors, block, 1e-12).solve(SquaredDslash(dslash)).vectors)

    def space(self, count: int, error: float) -> StaggeredSpace:
        """The lowest so many vectors, with noise of so many times their norm."""
        rng, v = np.random.default_rng(5), self.vectors[..., :count]
        noise = rng.normal(size=v.shape) + 1j * rng.normal(size=v.shape)
        noise /= np.linalg.norm(noise.reshape(-1, count), axis=0)
        v = np.ascontiguousarray(v + error * noise)
        return StaggeredSpace(self.dslash, Space.measured(SquaredDslash(self.dslash), v))

    def iterations(self, parity: int, mass: float, solver: BlockCGrQ | DeflatedSolver, rhs: int) -> int:
        b = noise_vectors(self.lattice, parity, "inexact vectors", 271, range(rhs))
        solution = solver.solve(NormalOperator(self.dslash, mass, parity), b)
        return solution.iterations


@pytest.fixture(scope="module")
def small() -> Field:
    return Field.of(Lattice((6, 6, 6, 8)), 10, 8, 3)


@pytest.mark.parametrize(
    ("parity", "precision", "error", "allowed"),
    [
        (EVEN, "double", 1e-3, ALLOWED),
        pytest.param(EVEN, "double", 1e-4, 0.85, marks=pytest.mark.slow),
        (ODD, "double", 1e-5, ALLOWED),
        (EVEN, "double-single", 1e-3, 0.85),
        pytest.param(ODD, "double-single", 1e-4, ALLOWED, marks=pytest.mark.slow),
    ],
)
def test_errors_cost_no_iterations(small, parity, precision, error, allowed):
    """What is allowed, of the iterations without vectors, is less where the vectors still serve."""
    solver = BlockCGrQ(1e-8, precision=precision)
    none = small.iterations(parity, 0.01, solver, 3)
    count = small.iterations(parity, 0.01, DeflatedSolver(solver, small.space(8, error)), 3)
    assert count <= allowed * none, (count, none)


@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_the_disturbance_is_what_a_correction_adds_outside_the_space(small: Field, parity: int) -> None:
    """For a residual in a space of one vector; the correction takes this away exactly."""
    A = NormalOperator(small.dslash, 0.01, parity)
    staggered = small.space(1, 1e-3)
    r = staggered.on(parity).within(noise_vectors(small.lattice, parity, "one", 7, range(2)))
    y, added = staggered.correction(A)(r)
    np.testing.assert_allclose(added, np.linalg.norm((r - A.apply(y)).reshape(-1, 2), axis=0), rtol=1e-3)


def test_corrections_end_where_they_disturb() -> None:
    """Relative disturbances of 2e-3, 0.4 and, not asked any more, 0; endured up to 0.3."""
    disturbances = iter([2e-3, 0.4, 0.0])

    class Deflate:
        def __len__(self) -> int:
            return 5

        def __call__(self, residual: NDArray, /) -> tuple[NDArray, NDArray]:
            norms = np.linalg.norm(residual, axis=0)
            return residual, np.array([0.0, 1.0, 0.5]) * next(disturbances) * norms

    seen: list[tuple[float, float, float, bool]] = []

    def tolerates(relative: float, reduction: float, share: float, first: bool) -> bool:
        seen.append((relative, reduction, share, first))
        return relative < 0.3

    corrections, columns = CorrectionSchedule(Deflate(), tolerates, 4), np.array([0, 1, 3])
    r, target = np.ones((4, 3)), np.array([0.1, 1e-3, 0.1])
    assert corrections.due(np.full(3, 2.0), columns).all() and corrections.replaced_at == 0
    assert corrections.correct(r, np.full(3, 2.0), target) is r
    corrections.enter(np.array([2.0, 2.0, 2.0]), columns)
    assert corrections.due(np.array([0.1, 0.3, 0.3]), columns).tolist() == [True, False, False]
    assert corrections.correct(r, np.full(3, 2.0), target) is None
    assert (corrections.made, corrections.active) == (1, False)
    relative, reduction, share, first = zip(*seen, strict=True)
    assert first == (True, False) and share == (5 / 3,) * 2
    np.testing.assert_allclose(relative, [2e-3, 0.4])
    np.testing.assert_allclose(reduction, [4.0, 800.0])


@pytest.mark.slow
@pytest.mark.parametrize("parity", [EVEN, ODD])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("vectors", [16, 64])
@pytest.mark.parametrize("mass", [0.01, 0.002])
def test_errors_cost_no_iterations_of_any_solve(mass, vectors, precision, parity):
    """The table of docs/notes/deflation.md, by the bounds that hold for every line of it."""
    field = large()
    for tolerance in (1e-10, 1e-12):
        solver = BlockCGrQ(tolerance, precision=precision)
        none = field.iterations(parity, mass, solver, 16)
        count = [
            field.iterations(parity, mass, DeflatedSolver(solver, field.space(vectors, error)), 16)
            for error in ERRORS
        ]
        assert max(count) <= ALLOWED * none, (tolerance, none, count)
        assert count[1] <= ALLOWED * count[0] < none, (tolerance, none, count)


@cache
def large() -> Field:
    return Field.of(Lattice((8, 8, 8, 16)), 40, 64, 16)
