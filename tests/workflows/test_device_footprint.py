"""The projected memory of a GPU is what its pool takes, within a tenth."""

from __future__ import annotations

import pytest

from pipeline import At
from pipeline.worker.memory import device_pool
from solver_memory import blocks_of
from stages.ensemble import staggered_operator as operators
from stages.ensemble.configuration import heatbath_configuration
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.wilson_operator import operator_bytes, wilson_operator
from stages.loops import current_loops as loops
from stages.loops.costs import device_solving_terms
from stages.loops.deflation_space import deflation_space
from stages.lqcd.dirac.staggered import SquaredDslash
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.eigen.memory import needed_bytes
from stages.lqcd.eigen.window import subspace_size
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise import Noise
from stages.lqcd.solvers.named import REGULAR, Solve, workspace_of

pytestmark = pytest.mark.gpu
LATTICE = Lattice((16, 16, 16, 16))


@pytest.fixture(scope="module")
def gauge():
    pytest.importorskip("cupy")
    at = At(config="memory.1")
    return heatbath_configuration(
        at=at, extents=LATTICE.extents, beta=6.0, seed=31, sweeps=1, overrelaxation=0
    )


@pytest.mark.parametrize("action", ["hisq", "asqtad", "naive"])
@pytest.mark.parametrize("solver", ["block_cgrq", "batched_cg"])
@pytest.mark.parametrize(
    ("precision", "block"),
    [
        ("double-single", 32),
        ("double-single", 16),
        ("double-single", 8),
        ("double-single", 4),
        ("double", 32),
    ],
)
def test_projection(gauge, action, solver, precision, block):
    pool, at = device_pool("cuda"), At(config="memory.1", noise=(0, 1, 2, 3), backend="cuda")
    pool.release_unused()
    before = pool._pool.used_bytes()
    pool.restart()
    options = {"boundary": "antiperiodic", "solves": ExpectedSolves(solver, precision, block)}
    if action == "hisq":
        dslash = operators.hisq_operator(gauge, at=at, naik_epsilon=0.0, **options)
    elif action == "asqtad":
        dslash = operators.asqtad_operator(gauge, at=at, u0=0.88, **options)
    else:
        dslash = operators.naive_operator(gauge, at=at, **options)
    pool.release_unused()
    solve, noise = Solve(solver, 1e-8, precision, block=block), Noise(3, "z2", {"displacement": 2})
    loops.current_loops(dslash, at=at, mass=0.5, solve=solve, noise=noise)
    directions, expected = 8 if action == "naive" else 16, ExpectedSolves(solver, precision, block)
    projected = sum(operators.operator_terms(LATTICE, directions, precision, expected.packing).values())
    projected += sum(device_solving_terms(LATTICE, directions, expected, 4).values())
    print(f"{(pool.bytes - before) / projected:.3f} of {projected / LATTICE.volume:.0f} bytes a site")
    assert 0.9 * projected < pool.bytes - before < 1.1 * projected
    del dslash
    pool.release_unused()


def test_projection_of_an_eigensolve(gauge):
    """At most what is projected, and not much less: the work space of its products is an upper bound."""
    cupy = pytest.importorskip("cupy")
    pool, at = device_pool("cuda"), At(config="memory.1", backend="cuda")
    pool.release_unused()
    before = pool._pool.used_bytes()
    solves = ExpectedSolves(precision="double")
    dslash = operators.hisq_operator(gauge, at=at, boundary="antiperiodic", naik_epsilon=0.0, solves=solves)
    SquaredDslash(dslash).apply(cupy.zeros((LATTICE.half_volume, 3, 8), complex))  # packs the links
    pool.release_unused()
    pool.restart()
    deflation_space(dslash, at=at, vectors=64, tolerance=1e-6)
    projected = sum(operators.operator_terms(LATTICE, 16, "double", solves.packing).values())
    modes = 3 * LATTICE.half_volume
    projected += needed_bytes(modes, 16, 64, 8, subspace_size(64, 8, modes))
    assert 0.6 * projected < pool.bytes - before < 1.1 * projected
    del dslash
    pool.release_unused()


@pytest.mark.parametrize(("csw", "mu"), [(0.0, 0.0), (1.0, 0.0), (0.0, 0.1)])
@pytest.mark.parametrize(("precision", "block"), [("double-single", 12), ("double", 12), ("double", 16)])
def test_projection_of_a_wilson_operator(gauge, csw, mu, precision, block):
    pool, at = device_pool("cuda"), At(config="memory.1", backend="cuda")
    pool.release_unused()
    before, solves = pool._pool.used_bytes(), ExpectedSolves("bicgstab", precision, block)
    M = wilson_operator(gauge, at=at, boundary="antiperiodic", mass=0.2, csw=csw, mu=mu, solves=solves)
    M.apply(M.xp.zeros((*M.shape, 1), complex))  # packs A
    projected = operator_bytes(LATTICE, precision, solves.packing, 2 if mu else int(csw))
    kept = pool._pool.used_bytes() - before
    print(f"{kept / LATTICE.volume:.0f} bytes a site, projected {projected / LATTICE.volume:.0f}")
    assert 0.95 * projected < kept < 1.05 * projected


@pytest.mark.parametrize("solver", ["bicgstab", "cgnr"])
def test_projection_of_solves_in_half(gauge, solver):
    """At most what is stated for mixed precision: narrower fields take less."""
    at, solves = At(config="memory.1", backend="cuda"), ExpectedSolves(solver, "double-half", 12)
    M = wilson_operator(gauge, at=at, boundary="antiperiodic", mass=0.2, csw=1.0, solves=solves)
    solve = Solve(solver, 1e-8, "double-half", block=12)
    taken = 1 + blocks_of(WilsonSchur(M), solve, M.links.links, None)
    stated = workspace_of(solver, REGULAR).on_device("double-half")
    print(f"{taken:.2f} blocks, stated {stated}")
    assert taken < 1.05 * stated
