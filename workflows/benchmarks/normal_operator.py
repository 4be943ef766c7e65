"""The even-odd normal operator 4 m^2 - D_eo D_oe of random links: two calls of the dslash."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.gauge.hisq import StaggeredLinks
from workflows.benchmarks.dslash import dslash_cost
from workflows.benchmarks.machine import random_field
from workflows.benchmarks.speed import Bench, Cost, Speed, streaming

MASS = 0.01


def normal_cost(rhs: int, dtype: np.dtype) -> Cost:
    """Two dslashes and the mass term, which reads the field again."""
    dslash = dslash_cost(rhs, dtype.itemsize)
    return dslash + dslash + streaming(12, 1, dtype)


def random_operator(bench: Bench) -> NormalOperator:
    """A positive-definite operator in double precision: D is anti-Hermitian whatever the links are."""
    shape = (4, 2, bench.lattice.half_volume, 3, 3)
    fat, long = (random_field(bench.machine, shape, np.complex128) for _ in range(2))
    long *= -1 / 24
    links = StaggeredLinks(fat, long, fat, bench.lattice, ("periodic",) * 4, 0.0)
    return NormalOperator(StaggeredDslash(links), MASS)


def speeds(bench: Bench) -> Iterator[Speed]:
    """The operator for every precision and width."""
    double, sites = random_operator(bench), bench.lattice.half_volume
    for precision, dtype, rhs in bench.blocks:
        operator = double.astype(dtype)
        x = random_field(bench.machine, (*operator.shape, rhs), dtype)
        yield bench.measured(
            partial(operator.apply, x, bench.machine.xp.empty_like(x)),
            normal_cost(rhs, dtype),
            sites,
            family="normal",
            kernel="4m^2 - Deo Doe",
            precision=precision,
            rhs=rhs,
        )
