"""HISQ links from the thin links of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from stages.gauge.heatbath import thermalised
from stages.gauge.hisq import hisq_links
from workflows.benchmarks.speed import Bench, Cost, Speed

STAPLES = 2 * 4 * 12
"""Calls of the staple kernel: two smearing steps, four directions, 12 nested staples each."""

STAPLE_FLOPS = 4 * 198 + 2 * 18
LONG_FLOPS = 4 * 2 * 198
MATRIX_BYTES = 9 * 16

COST = Cost(
    STAPLES * STAPLE_FLOPS + LONG_FLOPS,
    4 * 5 * MATRIX_BYTES,
    (STAPLES * 8 + 4 * 4) * MATRIX_BYTES,
)
"""Per site. Arithmetic of staples and long links; with perfect reuse thin links are read once and the four
results written; naively each staple reads six matrices and adds to a seventh."""


def speeds(bench: Bench) -> Iterator[Speed]:
    """In double precision, whatever precision the bench asks for: links are made in no other."""
    lattice = bench.lattice
    thin = thermalised(lattice, 6.0, 31, "bench", sweeps=2, overrelaxation=1, xp=bench.machine.xp)
    build = partial(hisq_links, thin, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    build()
    seconds = min(bench.machine.wall_seconds(build) for _ in range(2))
    yield bench.speed(
        seconds,
        bench.machine.joules(build, seconds),
        COST,
        lattice.volume,
        family="links",
        kernel="hisq_links",
        precision="double",
        rhs=1,
        unit="construction",
        lattice=str(lattice),
    )
