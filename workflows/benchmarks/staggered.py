"""The HISQ dslash of one parity, on the CPU the same written in NumPy, and the even-odd normal operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.gauge.hisq import StaggeredLinks
from stages.lqcd.gauge.origin import Origin
from stages.lqcd.gauge.reunitarise import to_u3
from stages.lqcd.kernels import hisq_dslash, short_numbers
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, neighbour_table
from stages.lqcd.kernels.dispatch import Array, implementation_of
from stages.lqcd.kernels.link_forms import FEW, Packing, StaggeredForm
from stages.lqcd.lattice.geometry import EVEN, Lattice
from workflows.benchmarks.machine import Machine, random_field
from workflows.benchmarks.speed import Bench, SiteCost, Speed, streaming

MASS = 0.01
FLOPS_PER_SITE = 16 * 66 + 15 * 6
"""Of one right-hand side: 16 products of a 3 x 3 matrix with a vector, and their sum."""

NUMPY_WORK = 1 << 20
"""Sites times right-hand sides on which the NumPy formulations are timed: they take microseconds each."""


def dslash_cost(rhs: int, itemsize: int) -> SiteCost:
    """144 numbers of the links, shared by the block; 16 neighbours or one; the result."""
    links, vector = HISQ_DIRECTIONS * 9 * itemsize / rhs, 3 * itemsize
    return SiteCost(FLOPS_PER_SITE, links + 2 * vector, links + (HISQ_DIRECTIONS + 1) * vector)


def half_cost(rhs: int) -> SiteCost:
    """A fat and a long link in 64 bytes; vectors of 16 bytes."""
    links, vector = HISQ_DIRECTIONS // 2 * 64 / rhs, 16
    return SiteCost(FLOPS_PER_SITE, links + 2 * vector, links + (HISQ_DIRECTIONS + 1) * vector)


def dslash_speeds(bench: Bench) -> Iterator[Speed]:
    """D on the even sites for every precision and width; in 16 bits on devices, the CPU has no kernel."""
    if "half" in bench.precisions and bench.machine.backend == "cuda":
        yield from _half_speeds(bench)
    machine, sites = bench.machine, bench.lattice.half_volume
    fields = random_links(machine, bench.lattice)
    for precision, dtype, rhs in bench.blocks:
        form = Packing(block=rhs).staggered(precision, HISQ_DIRECTIONS)
        packed = hisq_dslash.pack_fields(*fields, bench.lattice, EVEN, dtype, form)
        x = random_field(machine, (sites, 3, rhs), dtype)
        work = partial(hisq_dslash.hisq_dslash, packed, x, machine.xp.empty_like(x))
        names: dict[str, Any] = {"family": "dslash", "precision": precision, "rhs": rhs}
        cost = dslash_cost(rhs, dtype.itemsize)
        yield bench.measured(work, cost, sites, kernel="hisq_dslash", **names)
        if machine.backend == "cpu":
            links = np.empty((sites, HISQ_DIRECTIONS, 3, 3), dtype)
            implementation_of("link_fields.doubled_links", "cpu")(*fields, bench.lattice, EVEN, links)
            yield _best_of_numpy(bench, links, x, cost, names)


def _half_speeds(bench: Bench) -> Iterator[Speed]:
    machine, sites = bench.machine, bench.lattice.half_volume
    fields = random_links(machine, bench.lattice)
    for rhs in (width for width in bench.widths if width <= FEW):  # where half is no single
        packed = hisq_dslash.pack_fields(*fields, bench.lattice, EVEN, np.complex64, StaggeredForm.SHORT)
        x = short_numbers.to_short(random_field(machine, (sites, 3, rhs), np.complex64), 16)
        work = partial(hisq_dslash.hisq_dslash, packed, x, short_numbers.numbers_like(x))
        names = {"family": "dslash", "kernel": "hisq_dslash", "precision": "half"}
        yield bench.measured(work, half_cost(rhs), sites, rhs=rhs, **names)


def random_links(machine: Machine, lattice: Lattice) -> tuple[Array, Array]:
    """Random fields of fat links and of long ones in U(3), as forms of few reals need; complex128."""
    shape = 4, 2, lattice.half_volume, 3, 3
    fat, long = (random_field(machine, shape, np.complex128) for _ in range(2))
    return fat, to_u3(long, out=long).matrices


def _best_of_numpy(bench: Bench, links: NDArray, x: NDArray, cost: SiteCost, names: dict[str, Any]) -> Speed:
    """The fastest of three ways to write the dslash in NumPy, on as many sites as take a moment."""
    sites = min(len(links), max(1, NUMPY_WORK // x.shape[2]))
    neighbours = neighbour_table(bench.lattice, EVEN, HISQ_DIRECTIONS)[:sites]
    works = [partial(_numpy_dslash, product, links[:sites], neighbours, x) for product in PRODUCTS]
    seconds = min(map(bench.machine.seconds, works))
    return bench.speed(seconds, None, cost, sites, kernel="best of NumPy", **names)


def _numpy_dslash(
    product: Callable[[NDArray, NDArray], NDArray], links: NDArray, neighbours: NDArray, x: NDArray
) -> NDArray:
    total = product(links[:, 0], x[neighbours[:, 0]])
    for d in range(1, HISQ_DIRECTIONS):
        total += product(links[:, d], x[neighbours[:, d]])
    return total


def _by_broadcasting(u: NDArray, v: NDArray) -> NDArray:
    columns = [u[:, :, j, None] * v[:, None, j] for j in range(3)]
    return columns[0] + columns[1] + columns[2]


PRODUCTS = (np.matmul, partial(np.einsum, "sij,sjn->sin"), _by_broadcasting)


def normal_cost(rhs: int, dtype: np.dtype) -> SiteCost:
    """Two dslashes and the mass term, which reads the field again."""
    dslash = dslash_cost(rhs, dtype.itemsize)
    return dslash + dslash + streaming(12, 1, dtype)


def random_operator(machine: Machine, lattice: Lattice) -> NormalOperator:
    """A positive-definite operator in double precision: D is anti-Hermitian whatever the links are."""
    fat, long = random_links(machine, lattice)
    long *= -1 / 24
    links = StaggeredLinks(fat, long, Origin(fat), lattice, ("periodic",) * 4, 0.0)
    return NormalOperator(StaggeredDslash(links), MASS)


def packed_for(operator: NormalOperator, rhs: int) -> NormalOperator:
    """The operator with links in the form that blocks of so many right-hand sides read."""
    dslash = replace(operator.dslash, packing=Packing(block=rhs), _precisions={})
    return NormalOperator(dslash, MASS)


def normal_speeds(bench: Bench) -> Iterator[Speed]:
    """The operator for every precision and width."""
    double, sites = random_operator(bench.machine, bench.lattice), bench.lattice.half_volume
    for precision, dtype, rhs in bench.blocks:
        operator = packed_for(double, rhs).astype(dtype)
        x = random_field(bench.machine, (*operator.shape, rhs), dtype)
        work = partial(operator.apply, x, bench.machine.xp.empty_like(x))
        names = {"family": "normal", "kernel": "4m^2 - Deo Doe", "precision": precision}
        yield bench.measured(work, normal_cost(rhs, dtype), sites, rhs=rhs, **names)
