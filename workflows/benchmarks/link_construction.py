"""The heat bath that makes a configuration, and HISQ links from its thin links."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count

from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.kernels import heatbath
from workflows.benchmarks.machine import Work, fastest
from workflows.benchmarks.speed import Bench, SiteCost, Speed

BETA, REPEATS = 6.0, 2
PRODUCT = 198
"""Floating-point operations of a product of 3 x 3 matrices."""

MATRIX_BYTES = 9 * 16
STAPLES = 2 * 4 * 12
"""Calls of the staple kernel: two smearing steps, four directions, 12 nested staples each."""

HISQ_COST = SiteCost(
    STAPLES * (4 * PRODUCT + 2 * 18) + 4 * 2 * PRODUCT,
    4 * 5 * MATRIX_BYTES,
    (STAPLES * 8 + 4 * 4) * MATRIX_BYTES,
)
"""Per site. Arithmetic of staples and long links; with perfect reuse thin links are read once and the four
results written; naively each staple reads six matrices and adds to a seventh."""

SWEEP_COST = SiteCost(4 * (6 * 2 * PRODUCT + 5 * 18), 4 * 2 * MATRIX_BYTES, 4 * 20 * MATRIX_BYTES)
"""Per site. Arithmetic of the six staples around each link; with perfect reuse every link is read and written
once; naively 18 more are read for each."""


def speeds(bench: Bench) -> Iterator[Speed]:
    """Speeds in double precision, whatever the bench asks for: links are made in no other."""
    lattice, xp = bench.lattice, bench.machine.xp
    thin = thermalised(lattice, BETA, 31, "bench", sweeps=2, overrelaxation=1, xp=xp)
    build = partial(hisq_links, thin, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    sweeps = count()  # the same random numbers in every sweep drive links out of equilibrium

    def heat_bath() -> None:
        heatbath.heat_bath(thin, lattice, BETA, (271, 828), next(sweeps))

    works: dict[str, tuple[Work, SiteCost, str]] = {
        "hisq_links": (build, HISQ_COST, "construction"),
        "over_relax": (partial(heatbath.over_relax, thin, lattice), SWEEP_COST, "sweep"),
        "heat_bath": (heat_bath, SWEEP_COST, "sweep"),
    }
    for kernel, (work, cost, unit) in works.items():
        seconds, names = fastest(bench.machine, work, REPEATS), {"kernel": kernel, "unit": unit}
        joules = bench.machine.joules(work, seconds)
        yield bench.speed(
            seconds, joules, cost, lattice.volume, family="links", precision="double", rhs=1, **names
        )
