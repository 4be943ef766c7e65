"""Solves by SciPy and PyAMG as a user would call them, and by the solvers here, on the CPU; a Markdown table.

    python tests/benchmarks/beside_scipy.py [--hisq 8 8 8 16] [--wilson 8 8 8 8] [--mass 0.02]
    [--wilson-mass -0.5] [--repeats 3]

HISQ: the normal operator on the even sites, for SciPy the product of two CSR matrices D_eo and D_oe, for
PyAMG one CSR matrix. Wilson-clover, csw = 1: M on the whole lattice as a CSR matrix; here its even-odd
system. One quenched configuration each, beta = 5.7 and 6, antiperiodic in time, one normal source, to a
relative residual of 1e-10, with the other side's default settings; at most `LIMIT` iterations. After a solve
that compiles the one of least CPU time of the repeats, of PyAMG's the first; seconds of the setup and of the
solve, the CPU seconds of all threads in the solve, the true relative residual. SciPy and PyAMG have one
thread: NUMBA_NUM_THREADS=1 gives the solvers here as many. PyAMG's rows need `pip install pyamg`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from script import PrintedTable, arguments_of, quenched, staggered, wilson
from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.hisq import StaggeredLinks
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, GAMMA, SPINS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.multigrid.levels import default_levels, multigrid_of
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.even_odd import EvenOdd

SEED, TOLERANCE, LIMIT, RESTART = 577, 1e-10, 1000, 20
SWEEPS, CSW, SMOOTHING = 50, 1.0, 8
SOLVE = ("iterations", "setup s", "s", "CPU s", "residual")


gmres = partial(linalg.gmres, callback_type="pr_norm")
"""With a call back in each iteration."""


class Measured(NamedTuple):
    """Iterations, wall and CPU seconds of a solve, and its solution."""

    iterations: int
    seconds: float
    cpu: float
    x: NDArray


def main() -> None:
    """Print the table."""
    options = {"hisq": [8, 8, 8, 16], "wilson": [8, 8, 8, 8], "mass": 0.02, "wilson_mass": -0.5, "repeats": 3}
    arguments = arguments_of(__doc__, options=options)
    table = PrintedTable("system", "solver", *SOLVE)
    hisq(table, Lattice(tuple(arguments.hisq)), arguments.mass, arguments.repeats)
    wilson_clover(table, Lattice(tuple(arguments.wilson)), arguments.wilson_mass, arguments.repeats)


def hisq(table: PrintedTable, lattice: Lattice, mass: float, repeats: int) -> None:
    """Print the rows of the normal operator of HISQ quarks."""
    thin = quenched(lattice, "beside SciPy", beta=5.7, seed=SEED, sweeps=SWEEPS)
    A = NormalOperator(staggered(thin, lattice, 1), mass)
    b = source((*A.shape, 1))
    to_even, to_odd = (staggered_matrix(A.dslash.links, lattice, parity) for parity in (EVEN, ODD))
    operator = linalg.LinearOperator(
        to_even.shape, lambda x: A.shift * x - to_even @ (to_odd @ x), dtype=to_even.dtype
    )
    check(operator @ b.ravel(), A.apply(b))
    name = f"HISQ, {lattice}, m = {mass:g}"
    residual = partial(relative_residual, A.apply, b)
    add(table, name, "SciPy cg", measured(partial(by_scipy, linalg.cg, operator, b), repeats), residual)
    if find_spec("pyamg"):
        whole = (A.shift * sparse.identity(b.size) - to_even @ to_odd).tocsr()
        by_pyamg(table, name, whole, b, "hermitian", {"cg": linalg.cg}, residual)
    for precision in ("double", "double-single"):
        solve = partial(BatchedCG(TOLERANCE, precision=precision).solve, A, b)
        add(table, name, f"CG, {precision}", measured(partial(ours, solve), repeats), residual)
    many, blocks = source((*A.shape, 16)), {"batched CG": BatchedCG, "block CGrQ": BlockCGrQ}
    wide = NormalOperator(staggered(thin, lattice, 16), mass)
    for method, solver in blocks.items():
        run = measured(
            partial(ours, partial(solver(TOLERANCE, precision="double-single").solve, wide, many)), 1
        )
        each = run._replace(seconds=run.seconds / 16, cpu=run.cpu / 16)
        title = f"{method}, double-single, each of 16"
        add(table, name, title, each, partial(relative_residual, A.apply, many))


def wilson_clover(table: PrintedTable, lattice: Lattice, mass: float, repeats: int) -> None:
    """Print the rows of Wilson quarks."""
    thin = quenched(lattice, "beside SciPy", beta=6.0, seed=SEED, sweeps=SWEEPS)
    M = wilson(thin, lattice, mass, CSW, 1)
    b, matrix = source((*M.shape, 1)), wilson_matrix(M)
    check(matrix @ b.ravel(), M.apply(b))
    name, residual = f"Wilson-clover, {lattice}, m = {mass:g}", partial(relative_residual, M.apply, b)
    others = {"gmres": gmres, "bicgstab": linalg.bicgstab}
    for solver, call in others.items():
        add(table, name, f"SciPy {solver}", measured(partial(by_scipy, call, matrix, b), repeats), residual)
    if find_spec("pyamg"):
        by_pyamg(table, name, matrix, b, "nonsymmetric", others, residual)
    for precision in ("double", "double-single"):
        solve = partial(EvenOdd(BiCGstab(TOLERANCE, precision=precision), WilsonSchur).solve, M, b)
        add(table, name, f"BiCGstab, {precision}", measured(partial(ours, solve), repeats), residual)
    levels = [{"smoothing": SMOOTHING, **level} for level in default_levels(lattice)]
    multigrid_of(levels, SEED).setup(M)
    hierarchy = multigrid_of(levels, SEED).setup(M)
    solve = partial(EvenOdd(hierarchy.solver(TOLERANCE), WilsonSchur).solve, M, b)
    add(table, name, "multigrid", measured(partial(ours, solve), repeats), residual, hierarchy.seconds)


def by_scipy(solver: Callable[..., Any], A: Any, b: NDArray, M: Any = None) -> tuple[NDArray, int]:
    """Solution and iterations."""
    steps: list[object] = []
    most = LIMIT // (RESTART if solver is gmres else 1)  # of restarts
    x, _ = solver(A, b.ravel(), rtol=TOLERANCE, maxiter=most, callback=steps.append, M=M)
    return x, len(steps)


def by_pyamg(
    table: PrintedTable,
    name: str,
    matrix: Any,
    b: NDArray,
    symmetry: str,
    solvers: dict[str, Callable[..., Any]],
    residual: Callable[[NDArray], float],
) -> None:
    """Print the rows of Krylov solvers with a V-cycle of smoothed aggregation, set up by default."""
    start = time.perf_counter()
    levels = import_module("pyamg").smoothed_aggregation_solver(matrix, symmetry=symmetry)
    setup = time.perf_counter() - start
    cycle = levels.aspreconditioner()
    for solver, call in solvers.items():
        run = measured(partial(by_scipy, call, matrix, b, cycle), 0)
        add(table, name, f"PyAMG with SciPy {solver}", run, residual, setup)


def ours(solve: Callable[..., Any]) -> tuple[NDArray, int]:
    """Solution and iterations of a solver of this project."""
    solution = solve(on_failure="return")
    return solution.x, solution.iterations


def measured(solve: Callable[[], tuple[NDArray, int]], repeats: int) -> Measured:
    """Of some solves, after one that compiles if there are any, the one of least CPU time."""
    runs = []
    for _ in range(repeats + 1):
        start, cpu = time.perf_counter(), time.process_time()
        x, iterations = solve()
        runs.append(Measured(iterations, time.perf_counter() - start, time.process_time() - cpu, x))
    return min(runs[min(1, repeats) :], key=lambda run: run.cpu)


def add(
    table: PrintedTable,
    name: str,
    solver: str,
    run: Measured,
    residual: Callable[[NDArray], float],
    setup: float | None = None,
) -> None:
    """Print a row."""
    table.add(name, solver, run.iterations, setup, run.seconds, run.cpu, residual(run.x))


def relative_residual(apply: Callable[[NDArray], NDArray], b: NDArray, x: NDArray) -> float:
    """|b - A x| / |b| of all right-hand sides together."""
    return float(np.linalg.norm(b - apply(x.reshape(b.shape))) / np.linalg.norm(b))


def check(product: NDArray, expected: NDArray) -> None:
    """Ends the program where a sparse matrix is another operator than the one here."""
    if not np.allclose(product, expected.ravel(), rtol=0, atol=1e-10):
        raise SystemExit("the sparse matrix does not agree with the operator")


def source(shape: tuple[int, ...]) -> NDArray[np.complex128]:
    draw = np.random.default_rng(SEED).standard_normal
    return draw(shape) + 1j * draw(shape)


Hops = Iterable[tuple[NDArray[np.integer], NDArray[np.complex128]]]
"""Sites that are read, and the matrices ``[site, n, n]`` that multiply their vectors."""


def block_matrix(hops: Hops, sites: int) -> sparse.csr_matrix:
    """The matrix of a sum of hops into so many sites from so many."""
    parts = []
    for neighbours, blocks in hops:
        n, start = blocks.shape[-1], np.arange(sites + 1)
        parts.append(sparse.bsr_matrix((blocks, neighbours, start), shape=(n * sites, n * sites)).tocsr())
    return sum(parts[1:], parts[0])


def staggered_matrix(links: StaggeredLinks, lattice: Lattice, parity: int) -> sparse.csr_matrix:
    """D into the sites of a parity."""

    fields = {1: links.fat} if links.long is None else {1: links.fat, 3: links.long}

    def hops() -> Hops:
        for mu, (reach, field) in product(range(4), fields.items()):
            yield lattice.neighbour(parity, mu, reach), field[mu, parity]
            before = lattice.neighbour(parity, mu, -reach)
            yield before, -field[mu, 1 - parity][before].conj().swapaxes(1, 2)

    return block_matrix(hops(), lattice.half_volume)


def wilson_matrix(M: WilsonOperator) -> sparse.csr_matrix:
    """M = A - D / 2, even sites first."""
    lattice, links, one = M.lattice, M.links.links, np.eye(SPINS)

    def into(parity: int) -> Hops:
        for mu in range(4):
            before, forward = lattice.neighbour(parity, mu, -1), links[mu, parity]
            backward = links[mu, 1 - parity][before].conj().swapaxes(1, 2)
            for neighbours, gamma, u in (
                (lattice.neighbour(parity, mu, 1), one - GAMMA[mu], forward),
                (before, one + GAMMA[mu], backward),
            ):
                blocks = np.einsum("rs,xab->xrasb", gamma, u)
                yield neighbours, -0.5 * blocks.reshape(-1, COMPONENTS, COMPONENTS)

    def local(parity: int) -> sparse.csr_matrix:
        blocks = np.zeros((lattice.half_volume, COMPONENTS, COMPONENTS), complex)
        half = SPINS // 2 * COLOURS
        chiral = M.links.clover(parity)
        blocks[:, :half, :half], blocks[:, half:, half:] = chiral[:, 0], chiral[:, 1]
        blocks += M.constant * np.eye(COMPONENTS)
        return block_matrix([(np.arange(lattice.half_volume), blocks)], lattice.half_volume)

    hops = [block_matrix(into(parity), lattice.half_volume) for parity in (EVEN, ODD)]
    matrix = sparse.bmat([[local(EVEN), hops[EVEN]], [hops[ODD], local(ODD)]]).tocsr()
    matrix.eliminate_zeros()
    return matrix


if __name__ == "__main__":
    main()
