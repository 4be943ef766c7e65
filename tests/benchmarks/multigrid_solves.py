"""Setup and solves with multigrid, and the same solves with BiCGstab, masses from heavy to light.

    python tests/benchmarks/multigrid_solves.py [--backend cuda]
    [--gauge FILE [--tile 2] | --lattice 16 16 16 16 --beta 6.0] [--gpus 1]
    [--mass -0.5 -0.55] [--two-kappa-mu 0.02 0.0005] [--csw 1.0] [--xi0 3.5 --nu 1.0] [--rhs 16 1]
    [--aggregate 4 4 4 4 [2 2 2 2 ...]] [--vectors 24 ...] [--refinements 2] [--smoothing 8] [--restart 10]
    [--repeats 3] [--precision double-half] [--no-bicgstab] [--cg] [--error] [--one-by-one]
    [--levels] [--memory]

Wilson-clover, antiperiodic in t, on the configuration of a file, repeated `tile` times in each direction, or
on a quenched one by heat bath; random normal sources on the whole lattice, the symmetric Schur complement of
the even sites to a relative residual of 1e-10. A first setup and solve compile the kernels; the fastest of
the repeats counts; `--precision double-half` keeps multigrid's directions in 16 bits. Columns: seconds of
the setup, its factor per cycle; right-hand sides; then of multigrid, and of BiCGstab iterated in single
precision with residuals in double: iterations, milliseconds and joules of the whole GPU per right-hand side,
largest error over residual (both relative; `--error`, against a solution to 1e-13); the ratio of the
times. `--cg` adds iterations and milliseconds of CG on the normal equations. With a twisted mass the solves
of the other flavour, by the same setup, are rows of their own, of multigrid only. `--one-by-one` adds what
the setup takes whose vectors are relaxed and refined one after the other, and with the products of the finest
Galerkin operator one after the other too.

`--xi0` and `--nu` are of the operator: hops in space have the weight nu / xi0, and the spatial planes of the
clover term 1 / xi0. The heat bath is isotropic, and so are its links; `--gauge` takes others.

Tables in place of that of the solves, for each number of right-hand sides:

--levels    milliseconds of an iteration of a solve by grids: cycles on a grid in one of the finest, its
            smoother, restriction and prolongation, the rest of it (residual of A, on coarse grids GCR and
            even-odd steps), all together, and their part of the iteration. A cycle is one graph, which does
            not say what its parts take: each is timed by itself, as the difference of graphs with it eleven
            times and once. The first row is the iteration without its cycle
--memory    bytes of the arrays of the hierarchy, of its operator and of GCR after a solve, by grid, and what
            `quarkline plan` counts for them. On a CPU matrices of 16 bits are in single precision, and
            near-null vectors lie in one order
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, cast

import numpy as np

from multigrid_levels import by_level, by_term
from script import PrintedTable, arguments_of, devices_of, quenched
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.gauge.wilson_links import Anisotropy, wilson_links
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.lattice.formats import read_gauge
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.multigrid.aggregates import Prolongation, random_fields
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.multigrid.levels import default_levels, multigrid_of
from stages.lqcd.multigrid.setup import Multigrid, refined, relaxed
from stages.lqcd.multigrid.wilson import FineWilson
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.solvers.solution import NotConverged
from workflows.benchmarks.machine import Machine

SEED, TOLERANCE, EXACT = 577, 1e-10, 1e-13
EACH = ("its", "ms", "J", "err/res")
COLUMNS = (
    "mass",
    "2 kappa mu",
    "setup s",
    "rate",
    "rhs",
    *(f"MG {name}" for name in EACH),
    *EACH,
    "speed-up",
)
CG_COLUMNS = ("CG its", "CG ms")


def main() -> None:
    """Print the tables."""
    arguments = parsed()
    with devices_of(arguments):
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """Print the table of the solves, or those of the levels."""
    links, lattice = configuration(arguments)
    anisotropy = Anisotropy(arguments.xi0, arguments.nu)
    levels = levels_of(arguments, lattice)
    multigrid = multigrid_of(levels, SEED)
    clover: dict[str, Any] = {"csw": arguments.csw, "anisotropy": anisotropy}
    dslash = WilsonDslash(wilson_links(links, lattice, boundary="antiperiodic", **clover))
    print(f"{arguments.gpus} x {arguments.machine.name}; {lattice}, csw = {arguments.csw:g}, {anisotropy}")
    for level in levels:
        print(", ".join(f"{name} {value}" for name, value in level.items()))
    by_solves = not (arguments.levels or arguments.memory)
    table = PrintedTable(*COLUMNS, *(CG_COLUMNS if arguments.cg else ())) if by_solves else None
    for mass, twist in product(arguments.mass, arguments.two_kappa_mu):
        M = WilsonOperator(dslash, mass, twist * (mass + 4))
        if table is not None:
            of_mass(arguments, table, multigrid, M)
        else:
            print(f"\nm = {mass:g}, 2 kappa mu = {twist:g}", flush=True)
            insides(arguments, multigrid.setup(M))


def insides(arguments: argparse.Namespace, hierarchy: Hierarchy) -> None:
    """Print the tables of what a hierarchy consists of, after solves of each number of right-hand sides."""
    precision, levels = arguments.precision, levels_of(arguments, arguments.lattice)
    for rhs in arguments.rhs:
        b = source(arguments, hierarchy, rhs)
        solver = hierarchy.solver(TOLERANCE, restart=arguments.restart, precision=precision)
        solve = partial(solver.solve, hierarchy.system, b)
        iterations, seconds, _ = measured(arguments.machine, solve, arguments.repeats)
        print(f"\nN = {rhs}: {iterations} iterations, {1e3 * seconds:.4g} ms")
        if arguments.levels:
            iteration = seconds / iterations if isinstance(iterations, int) else np.nan
            by_level(arguments.machine, hierarchy, b, iteration)
        if arguments.memory:
            by_term(arguments.machine, hierarchy, b, levels, precision, arguments.restart)
        del b, solve


def of_mass(
    arguments: argparse.Namespace, table: PrintedTable, multigrid: Multigrid, M: WilsonOperator
) -> None:
    """Print the rows of one mass; nothing of it stays in memory."""
    multigrid.setup(M)
    best = multigrid.setup(M)
    for _ in range(arguments.repeats - 1):
        best = min(best, multigrid.setup(M), key=lambda hierarchy: hierarchy.seconds)
    for rhs, factor in product(arguments.rhs, (1, -1) if M.mu else (1,)):
        hierarchy = best if factor == 1 else best.twist_scaled(-1)
        twist = factor * M.mu / (M.mass + 4)
        table.add(
            M.mass, twist, best.seconds, best.rate, rhs, *solves(arguments, hierarchy, rhs, factor == 1)
        )
    if arguments.one_by_one:
        refining, products = one_by_one(multigrid, best, arguments.machine)
        for what, longer in (("", refining), (", Galerkin products too", refining + products)):
            seconds = best.seconds + longer
            print(f"one by one{what}: {seconds:.3g} s, {seconds / best.seconds:.1f} times as long")


def solves(arguments: argparse.Namespace, hierarchy: Hierarchy, rhs: int, others: bool) -> list[object]:
    """Cells of the solves of one mass for so many right-hand sides; others: BiCGstab and CG, too."""
    machine, S, b = arguments.machine, hierarchy.system, source(arguments, hierarchy, rhs)
    exact = hierarchy.solver(EXACT).solve(S, b, on_failure="return").x if arguments.error else None
    solvers: list[Any] = [
        hierarchy.solver(TOLERANCE, restart=arguments.restart, precision=arguments.precision)
    ]
    if others and not arguments.no_bicgstab:
        solvers.append(BiCGstab(TOLERANCE, max_iterations=5000, precision="double-single"))
    cells: list[object] = []
    seconds: list[float] = []
    for solver in solvers:
        iterations, fastest, joules = measured(machine, partial(solver.solve, S, b), arguments.repeats)
        seconds.append(fastest)
        ratio: float | None = None
        if exact is not None and isinstance(iterations, int):
            ratio = error_to_residual(S, solver.solve(S, b).x, b, exact)
        cells += [iterations, 1e3 * fastest / rhs, None if joules is None else joules / rhs, ratio]
    cells = [*cells, seconds[1] / seconds[0]] if len(solvers) == 2 else [*cells, *[None] * (len(EACH) + 1)]
    if arguments.cg and not others:
        cells += [None] * len(CG_COLUMNS)
    elif arguments.cg:
        cg = NormalEquations(BatchedCG(TOLERANCE, max_iterations=20000, precision="double-single"))
        iterations, fastest, _ = measured(machine, partial(cg.solve, S, b), arguments.repeats)
        cells += [iterations, 1e3 * fastest / rhs]
    return cells


def source(arguments: argparse.Namespace, hierarchy: Hierarchy, rhs: int) -> Array:
    """Right-hand sides of S of random normal fields on the whole lattice."""
    S, draw = hierarchy.system, arguments.machine.xp.random.default_rng(SEED).standard_normal
    shape = (*S.M.shape, rhs)
    return S.prepare(draw(shape) + 1j * draw(shape))[0]


def measured(
    machine: Machine, solve: Callable[[], Any], repeats: int
) -> tuple[int | str, float, float | None]:
    """Iterations, least seconds and joules of some equal solves after one that compiles."""
    try:
        iterations = solve().iterations
    except NotConverged as failure:
        return failure.solution.status.name.lower(), np.nan, None
    seconds = min(machine.wall_seconds(solve) for _ in range(repeats))
    return iterations, seconds, machine.joules(solve, seconds)


def error_to_residual(S: Any, x: Array, b: Array, exact: Array) -> float:
    """The largest |x - exact| / |exact| over |b - S x| / |b| of the right-hand sides."""

    def norms(field: Array) -> Any:
        return np.linalg.norm(as_numpy(field).reshape(-1, b.shape[-1]), axis=0)

    return float((norms(x - exact) / norms(exact) / (norms(b - S.apply(x)) / norms(b))).max())


def one_by_one(multigrid: Multigrid, hierarchy: Hierarchy, machine: Machine) -> tuple[float, float]:
    """Seconds that a setup would take longer if its vectors were worked on one after the other.

    Relaxed and refined one by one; and by the products of the finest Galerkin operator one by one.
    """

    def longer(step: Callable[[Array], Any], fields: Array) -> float:
        blocks = [machine.xp.ascontiguousarray(fields[..., k : k + 1]) for k in range(fields.shape[-1])]
        step(blocks[0])
        together = machine.wall_seconds(lambda: step(fields))
        return machine.wall_seconds(lambda: [step(block) for block in blocks]) - together

    seconds, builds = 0.0, 1
    cycle: Any = hierarchy.cycle
    for parameters in multigrid.levels:
        A: Any = cycle.levels[0].A
        shape = (A.grid.sites, A.components, parameters.vectors)
        fields = random_fields(shape, A.dtype, A.links, SEED)
        seconds += builds * longer(lambda x: relaxed(A, x, parameters.relaxation), fields)  # noqa: B023
        seconds += parameters.refinements * longer(lambda x: refined(A, x, cycle), fields)  # noqa: B023
        cycle, builds = cycle.below, builds + parameters.refinements
    finest = hierarchy.cycle.levels[0]
    fine, P = cast(FineWilson, finest.A), cast(Prolongation, finest.prolongation)
    whole, faces = P.on_all_sites(), [P.on_face(mu) for mu in range(4)]

    def products(columns: Array) -> None:
        whole.restrict(fine.local(columns))
        for mu in range(4):
            moved = fine.forward_hop(mu, columns)
            whole.restrict(moved), faces[mu].restrict(moved)

    return seconds, (1 + multigrid.levels[0].refinements) * longer(products, P.columns(slice(None)))


def configuration(arguments: argparse.Namespace) -> tuple[Array, Lattice]:
    """Thin links where the machine computes, and their lattice."""
    xp, lattice = arguments.machine.xp, arguments.lattice
    if arguments.gauge is None:
        chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
        return quenched(lattice, "multigrid", **chain, xp=xp), lattice
    gauge = read_gauge(arguments.gauge)
    extents = np.multiply(arguments.tile, gauge.lattice.extents).tolist()
    lattice = Lattice(tuple(extents))
    return xp.asarray(tiled(gauge.links, gauge.lattice, lattice)), lattice


def tiled(links: Array, lattice: Lattice, larger: Lattice) -> Array:
    """Links ``[mu, parity, site, 3, 3]`` repeated in all directions on a lattice of even multiples."""
    fields = []
    for parity in (EVEN, ODD):
        sites = np.ravel_multi_index(
            tuple((larger.coordinates(parity) % np.array(lattice.extents)).T[::-1]), lattice.extents[::-1]
        )
        order = np.argsort(lattice.lexicographic(parity))
        fields.append(links[:, parity, order[np.searchsorted(lattice.lexicographic(parity)[order], sites)]])
    return np.stack(fields, axis=1)


def levels_of(arguments: argparse.Namespace, lattice: Lattice) -> list[dict[str, Any]]:
    """The levels that the arguments describe, by default those that suit the lattice."""
    levels: list[dict[str, Any]] = default_levels(lattice)
    if arguments.aggregate[0]:
        extents = np.array(arguments.aggregate).reshape(-1, 4).tolist()
        vectors = (arguments.vectors * len(extents))[: len(extents)]
        levels = [{"aggregate": blocks, "vectors": n} for blocks, n in zip(extents, vectors, strict=True)]
    settings = {"smoothing": arguments.smoothing, "refinements": arguments.refinements}
    return [{**settings, **level} for level in levels]


def parsed() -> argparse.Namespace:
    field = {
        "gpus": 1,
        "gauge": str,
        "tile": 1,
        "beta": 6.0,
        "sweeps": 50,
        "mass": [-0.5, -0.55],
        "csw": 1.0,
        "xi0": 1.0,
        "nu": 1.0,
        "two_kappa_mu": [0.0],
    }
    levels = {"aggregate": [0], "vectors": [24], "refinements": 2, "smoothing": 8}
    solves = {"rhs": [16], "restart": 10, "precision": "double-single", "repeats": 3}
    flags = {
        "no_bicgstab": False,
        "cg": False,
        "error": False,
        "one_by_one": False,
        "levels": False,
        "memory": False,
    }
    options = {**field, **levels, **solves, **flags}
    arguments = arguments_of(__doc__, lattice=(16, 16, 16, 16), machine="cpu", options=options)
    if arguments.gauge is not None:
        extents = np.multiply(arguments.tile, read_gauge(arguments.gauge).lattice.extents).tolist()
        arguments.lattice = Lattice(tuple(extents))
    return arguments


if __name__ == "__main__":
    main()
