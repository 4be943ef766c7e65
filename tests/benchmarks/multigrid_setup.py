"""Times of the steps of a multigrid setup, as Markdown tables.

    python tests/benchmarks/multigrid_setup.py [--backend cuda] [--lattice 32 32 32 64] [--mass -0.56]

First table: kernels of the finest transfer, aggregates of 4^4 sites and 24 vectors: time, rate of arithmetic
(of a whole Gram matrix, of which half is computed), and bytes with every field read or written once over time
and the copy bandwidth of the same run. Second table: phases of a setup on a quenched configuration by heat
bath, all grids together, the machine waited for before and after each, beside a setup without waiting and the
joules of one, of several that follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from script import PrintedTable, arguments_of, quenched, wilson
from stages.lqcd.kernels import aggregation, random_numbers
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid import setup
from stages.lqcd.multigrid.aggregates import Grid, aggregates, prolongation, random_fields
from stages.lqcd.multigrid.coarse_operator import CoarseOperator
from stages.lqcd.multigrid.levels import default_levels, multigrid_of
from stages.lqcd.multigrid.wilson import FineWilson
from workflows.benchmarks.machine import Machine, Work

SEED, VECTORS, AGGREGATE = 577, 24, (4, 4, 4, 4)
PHASES = (
    *("random_on_grid", "relaxed", "prolongation", "galerkin", "coarsest", "refined"),
    *("first_cycles", "measured_rate"),  # of the rate
)


def main() -> None:
    """Print both tables."""
    arguments = arguments_of(__doc__, lattice=(16, 16, 16, 16), machine="cpu", options={"mass": -0.56})
    machine, lattice = arguments.machine, arguments.lattice
    copy = machine.copy_bandwidth()
    print(f"{machine.name}; {lattice}; copy {copy:.0f} GB/s")
    table = PrintedTable("kernel", "N", "ms", "GFLOP/s", "of copy")
    for name, rhs, work, flops, size in kernels(machine, lattice):
        seconds = machine.seconds(work)
        table.add(name, rhs, 1e3 * seconds, flops / seconds / 1e9, size / seconds / 1e9 / copy)
    thin = quenched(lattice, "multigrid", beta=6.0, seed=SEED, sweeps=50, xp=machine.xp)
    M = wilson(thin, lattice, arguments.mass, 1.0)
    levels = [{"smoothing": 8, "refinements": 2, **level} for level in default_levels(lattice)]
    multigrid = multigrid_of(levels, SEED)
    multigrid.setup(M)
    alone = min(multigrid.setup(M).seconds for _ in range(3))
    joules = machine.joules(partial(multigrid.setup, M), alone)
    with watched(machine) as spent:
        waiting = multigrid.setup(M).seconds
    energy = "" if joules is None else f", {joules:.3g} J"
    print(f"\nsetup: {alone:.3g} s{energy}; {waiting:.3g} s with waiting")
    table = PrintedTable("phase", "calls", "ms")
    for name, times in spent.items():
        table.add(name, len(times), 1e3 * sum(times))


def kernels(machine: Machine, lattice: Lattice) -> Iterator[tuple[str, int, Work, float, float]]:
    """Name, right-hand sides, call, operations and bytes of each."""
    like: Array = machine.xp.empty(0, np.complex64)

    def fields(count: int) -> Array:
        return random_fields((lattice.volume, COMPONENTS, count), np.complex64, like, SEED)

    V = fields(VECTORS)
    yield "fill_random", VECTORS, partial(random_numbers.fill_random, V, SEED, 0), 0.0, V.nbytes
    P, _ = prolongation(aggregates(Grid(lattice.extents), AGGREGATE), V)
    whole, products = P.on_all_sites(), 8.0 * lattice.volume * COMPONENTS * VECTORS
    yield "gram", VECTORS, partial(aggregation.gram, P.vectors), products * VECTORS, V.nbytes
    for rhs in (1, 16, VECTORS, 2 * VECTORS):
        x = fields(rhs)
        size = V.nbytes + x.nbytes
        yield "restrict", rhs, partial(whole.restrict, x), products * rhs, size
        yield (
            "add_prolonged",
            rhs,
            partial(whole.add_prolonged, whole.restrict(x), x),
            products * rhs,
            size + x.nbytes,
        )


@contextmanager
def watched(machine: Machine) -> Iterator[dict[str, list[float]]]:
    """Seconds of each call of the phases while the block lasts."""
    spent: dict[str, list[float]] = {name: [] for name in PHASES}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            results: list[Any] = []
            work = partial(function, *arguments, **options)
            spent[name].append(machine.wall_seconds(lambda: results.append(work())))
            return results[0]

        return call

    with ExitStack() as patches:
        for name in PHASES:
            for owner in (FineWilson, CoarseOperator) if name == "galerkin" else (setup,):
                patches.enter_context(patch.object(owner, name, timed(name, getattr(owner, name))))
        yield spent


if __name__ == "__main__":
    main()
