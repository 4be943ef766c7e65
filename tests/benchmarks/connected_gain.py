"""Random walls with and without exact low modes: error of C(t) at fixed field, seconds and joules.

    python tests/benchmarks/connected_gain.py [--backend cuda] [--lattice 8 8 8 16] [--beta 6.0] [--mass 0.01]
    [--vectors 16 32] [--walls 16] [--configurations 2] [--times 3 6] [--lanczos 1e-4] [--precision single]

HISQ links of quenched configurations; local vector current in x, y and z; solves to 1e-9 in double-single.
For each configuration: the search of the vectors (the second of two), one wall by CG without vectors, then
all walls deflated by all vectors. Rows: the lowest so many vectors, whose part of all sources is exact; 0 is
random walls alone. Columns: seconds of LL, and per wall of contractions with its low part; at each time
C(t), its error by one wall, from the deviations of the walls from their mean, and how many times fewer
seconds the same error takes than by walls alone that are deflated, too; than by walls alone solved by CG; and
that with the search and LL, over so many walls alone as --planned says.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np

from pipeline import At
from script import SMALL, PrintedTable, arguments_of, quenched, searched_twice, staggered, stored, timed
from stages.connected.low_modes import low_low, low_propagator, meson_fields
from stages.connected.walls import random_wall_sources, wall_correlators
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.space import Space
from stages.lqcd.spectroscopy.low_propagator import LowPropagator
from stages.lqcd.spectroscopy.vector_currents import CURRENTS
from stages.mesons.propagator import staggered_propagator

OPERATORS = CURRENTS["local"]
SEED, TOLERANCE = 271, 1e-9


def main() -> None:
    """Print a table for each configuration."""
    problem = {"beta": 6.0, "sweeps": 40, "mass": 0.01, "walls": 16, "planned": 64, "configurations": 2}
    vectors = {"vectors": [16, 32], "precision": ("single", "double"), "lanczos": 1e-4, "times": [3, 6]}
    given = arguments_of(__doc__, lattice=SMALL, machine="cpu", options={**problem, **vectors})
    for number in range(given.configurations):
        configuration(given, f"configuration {number}")


def configuration(given: Namespace, label: str) -> None:
    machine, lattice = given.machine, given.lattice
    thin = quenched(lattice, label, beta=given.beta, seed=SEED, sweeps=given.sweeps, xp=machine.xp)
    dslash = staggered(thin, lattice, block=16)
    del thin
    pairs, _, search_joules = searched_twice(given, dslash, 16)
    even = Space.measured(SquaredDslash(dslash), stored(pairs, given.precision))
    space, search = StaggeredSpace(dslash, even), pairs.seconds
    del pairs
    solve = Solve("batched_cg", TOLERANCE, block=12)

    def wall(number: int, deflation: StaggeredSpace | None) -> Any:
        at = At(config=label, source=[number], backend=machine.backend)
        sources = random_wall_sources(dslash, at=at, operators=OPERATORS, seed=SEED)
        return (
            at,
            sources,
            staggered_propagator(dslash, sources, deflation, at=at, mass=given.mass, solve=solve),
        )

    wall(0, space)  # kernels are compiled
    _, plain, plain_joules = timed(machine, lambda: wall(0, None))
    solved, deflated, joules = timed(machine, lambda: [wall(n, space) for n in range(given.walls)])
    deflated, joules = deflated / given.walls, (joules or 0) / given.walls
    print(f"\n{machine.name}; {lattice}, beta = {given.beta:g}, {label}, m = {given.mass:g}")
    print(f"search {search:.2f} s, {search_joules or 0:.0f} J; ", end="")
    print(f"a wall deflated {deflated:.3f} s, {joules:.0f} J; ", end="")
    print(f"by CG alone {plain:.3f} s, {plain_joules or 0:.0f} J; lowest {space.even.eigenvalues[0]:.3g}")
    gains = [f"{kind}, t = {t}" for t in given.times for kind in ("C", "error", "deflated", "CG", "all, CG")]
    table = PrintedTable("vectors", "LL s", "low part s", *gains)
    alone: list[float] = []
    for count in (0, *given.vectors):
        values, exact, parts = estimates(given, dslash, space, count, solved, label)
        means = exact + values.mean(axis=0)
        errors = [float(values[:, t].std(ddof=1)) for t in given.times]
        alone = alone or errors
        cells: list[float] = []
        for t, own, without in zip(given.times, errors, alone, strict=True):
            fewer = (own / without) ** 2
            whole = search + parts[0] if count else 0.0
            seconds = fewer * (deflated + parts[1])
            cells += [float(means[t]), own, deflated / seconds, plain / seconds]
            cells.append(given.planned * plain / (given.planned * seconds + whole))
        table.add(count, *parts, *cells)


def estimates(
    given: Namespace, dslash: StaggeredDslash, space: StaggeredSpace, count: int, solved: Any, label: str
) -> tuple[Any, Any, tuple[float, float]]:
    """C(t) by each wall without its low part, exact LL(t), and seconds of LL and of a wall's low part."""
    options: dict[str, Any] = {"operators": OPERATORS, "mass": given.mass, "seed": SEED, "block": 12}
    low: LowPropagator | None = None
    exact, first = np.zeros(given.lattice.time_extent), 0.0
    if count:
        low = low_propagator(space.lowest(count), at=At(config=label))

        def all_sources() -> Any:
            at = At(config=label, row=range(count), backend=given.machine.backend)
            fields = [(at, meson_fields(low, at=at, operators=OPERATORS))]
            return low_low(fields, at=At(config=label), operators=OPERATORS, mass=given.mass)

        all_sources()  # kernels are compiled
        result, first, _ = timed(given.machine, all_sources)
        exact = result.low_low.mean(axis=0)

    def contracted() -> Any:
        return [wall_correlators(x, b, dslash, low, at=at, **options) for at, b, x in solved]

    contracted()
    walls, seconds, _ = timed(given.machine, contracted)
    rest = np.stack([np.real(each.correlator - each.low)[0].mean(axis=0) for each in walls])
    return rest, exact, (first, seconds / len(solved))


if __name__ == "__main__":
    main()
