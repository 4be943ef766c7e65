"""Times of the steps of a multigrid setup, as Markdown tables.

    python -m workflows.benchmarks.multigrid_setup [--backend cuda] [--lattice 32 32 32 64] [--mass -0.56]

First table: kernels of the finest transfer, aggregates of 4^4 sites and 24 vectors: time, rate of arithmetic
(of a whole Gram matrix, of which half is computed), and bytes with every field read or written once over time
and the copy bandwidth of the same run. Second table: phases of a setup on a quenched configuration by heat
bath, all grids together, the machine waited for before and after each, beside a setup without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from stages.lqcd.kernels import aggregation as aggregation_kernels
from stages.lqcd.kernels import random_block
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid import multigrid as setup
from stages.lqcd.multigrid.grid import Grid, aggregates
from stages.lqcd.multigrid.levels import default_levels, multigrid_of
from stages.lqcd.multigrid.near_null import random_fields
from stages.lqcd.multigrid.transfer import transfer
from workflows.benchmarks.machine import Machine, machine_of
from workflows.benchmarks.script import options, quenched, wilson

SEED, VECTORS, AGGREGATE = 577, 24, (4, 4, 4, 4)
PHASES = ("random_fields", "relaxed", "transfer", "galerkin", "coarsest_solve", "refined", "measured_rate")


def main() -> None:
    """Print both tables."""
    parser = options(__doc__, lattice=(16, 16, 16, 16))
    parser.add_argument("--mass", type=float, default=-0.56)
    arguments = parser.parse_args()
    machine, lattice = machine_of(arguments.backend), Lattice(tuple(arguments.lattice))
    copy = machine.copy_bandwidth()
    print(f"{machine.name}; {lattice}; copy {copy:.0f} GB/s\n\n| kernel | N | ms | GFLOP/s | of copy |")
    print("|---|---|---|---|---|")
    for name, rhs, seconds, flops, size in kernels(machine, lattice):
        rates = f"{flops / seconds / 1e9:.0f} | {size / seconds / 1e9 / copy:.2f}"
        print(f"| {name} | {rhs} | {1e3 * seconds:.3f} | {rates} |", flush=True)
    phases(machine, lattice, arguments.mass)


def kernels(machine: Machine, lattice: Lattice) -> Iterator[tuple[str, str, float, float, float]]:
    """Name, right-hand sides, seconds, operations and bytes of each."""
    like: Array = machine.xp.empty(0, np.complex64)
    sites = lattice.volume

    def fields(count: int) -> Array:
        return random_fields((sites, COMPONENTS, count), np.complex64, like, SEED)

    V = fields(VECTORS)
    yield (
        "fill_random",
        "",
        machine.seconds(lambda: random_block.fill_random(V, SEED, 0)),
        0,
        V.nbytes,
    )
    P = transfer(aggregates(Grid(lattice.extents), AGGREGATE), V)
    products = 8.0 * sites * COMPONENTS * VECTORS
    yield (
        "gram",
        "",
        machine.seconds(lambda: aggregation_kernels.gram(P.vectors)),
        products * VECTORS,
        V.nbytes,
    )
    for rhs in (1, 16, VECTORS, 2 * VECTORS):
        x = fields(rhs)
        coarse, size = P.restrict(x), V.nbytes + x.nbytes
        yield "restrict", str(rhs), machine.seconds(lambda: P.restrict(x)), products * rhs, size  # noqa: B023
        seconds = machine.seconds(lambda: P.add_prolonged(coarse, x))  # noqa: B023
        yield "add_prolonged", str(rhs), seconds, products * rhs, size + x.nbytes


def phases(machine: Machine, lattice: Lattice, mass: float) -> None:
    """Print the second table."""
    M = wilson(
        quenched(lattice, "multigrid", beta=6.0, seed=SEED, sweeps=50, xp=machine.xp), lattice, mass, 1.0
    )
    levels = [{"smoothing": 6, "refinements": 2, **level} for level in default_levels(lattice)]
    multigrid = multigrid_of(levels, SEED)
    multigrid.setup(M)
    alone = min(multigrid.setup(M).seconds for _ in range(3))
    with watched(machine) as spent:
        waiting = multigrid.setup(M).seconds
    print(f"\nsetup: {alone:.3g} s, {waiting:.3g} s with waiting\n\n| phase | calls | ms |\n|---|---|---|")
    for name, times in spent.items():
        print(f"| {name} | {len(times)} | {1e3 * sum(times):.1f} |")


@contextmanager
def watched(machine: Machine) -> Iterator[dict[str, list[float]]]:
    """Seconds of each call of the phases while the block lasts."""
    spent: dict[str, list[float]] = {name: [] for name in PHASES}
    before = {name: getattr(setup, name) for name in PHASES}

    def timed(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            results: list[Any] = []
            spent[name].append(
                machine.wall_seconds(lambda: results.append(before[name](*arguments, **options)))
            )
            return results[0]

        return call

    try:
        for name in PHASES:
            setattr(setup, name, timed(name))
        yield spent
    finally:
        for name, function in before.items():
            setattr(setup, name, function)


if __name__ == "__main__":
    main()
