"""One lattice on several GPUs against one: time, efficiency and energy of products, iterations and solves.

    python tests/benchmarks/many_gpus.py [--gpus K] [--per-gpu X Y Z T] [--parts NAME ...]

Weak: each GPU holds as many sites as one has alone. Strong: all hold together what one has. Efficiency is the
time on one GPU, by its own kernels in the same run, over the time here, and over K where it is strong.
Joules are those of all GPUs used, of an iteration or a solve. Parts: `products`, with an iteration of CG,
from graphs of ten; `iterations` of whole solves on random links, replacements of residuals among them;
`solves` on links of the heat bath; `probe`, iterations on 40^4 for each GPU as others publish them. Each case
prints its own failure and the next one begins: a run on several GPUs is dear.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import nan, prod
from typing import Any

import cupy
import numpy as np

from pipeline.worker.energy import energy_meter
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.kernels import block_blas, cg_update, random_numbers, stream
from stages.lqcd.kernels import hisq_dslash as dslash
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cuda import cg_update as cuda_cg
from stages.lqcd.kernels.cuda.columns import reduction
from stages.lqcd.kernels.cuda.compile import _compiled, _threads
from stages.lqcd.kernels.cuda.devices.group import spread_over
from stages.lqcd.kernels.cuda.hisq_dslash import (
    FORMS,
    FULL,
    Links18,
    PackedLinks,
    dslash_launch,
    dslash_tile,
    sum_rows_launch,
)
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, empty_field
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from workflows.benchmarks.machine import Device, random_field
from workflows.benchmarks.solver_iteration import iteration
from workflows.benchmarks.staggered import random_operator

SINGLE = np.dtype(np.complex64)
DIRECTIONS = 16
SHIFT = 400.0
"""Of the operator, so large that CG on links that are random numbers behaves."""

CALLS = 10
"""Products or iterations of a graph."""

METHODS = ((BatchedCG, 1), (BatchedCG, 16), (BlockCGrQ, 16))
PUBLISHED = ((BatchedCG, 1), (BatchedCG, 12))
PROBE = 40
"""Extent of each side of the probe's lattice on one GPU."""

BETA, SEED, MASS = 6.0, 31, 0.1
"""Of links after one sweep, and of the solves on them."""

TOLERANCE = 1e-10


@dataclass(frozen=True)
class Problem:
    """Fields of CG ``[site, 3, N]`` and packed links into both parities: the same numbers at every call."""

    links: tuple[PackedLinks, PackedLinks]
    coefficients: CGCoefficients
    y: Array
    p: Array
    r: Array
    between: Array
    ap: Array

    def product(self) -> None:
        """D on the odd sites, then on the even ones with p^H A p: A p = SHIFT p - D D p."""
        even, odd = self.links
        dslash.hisq_dslash(odd, self.p, self.between)
        operands = even, self.between, self.ap
        dslash.hisq_dslash(*operands, diagonal=self.p, a=SHIFT, b=-1.0, dots=self.coefficients.pap)

    def step(self) -> None:
        """An iteration of batched CG."""
        cg_update.cg_advance(self.y, self.p, self.r, self.coefficients)
        self.product()
        cg_update.cg_residual(self.r, self.ap, self.coefficients)

    def begin(self, target2: float) -> None:
        """Random r, and p and y of zero."""
        fill(self.r, 7)
        assign(self.y, 0)
        assign(self.p, 0)
        c = self.coefficients
        c.numbers.fill(0)
        c.r2[...] = c.gamma[...] = block_blas.norms2(self.r)
        c.target2[...] = target2


def problem(lattice: Lattice, n: int, form: Links18) -> Problem:
    sites = prod(dslash_tile(lattice))
    tiles = lattice.half_volume // sites
    packed = []
    for parity in (EVEN, ODD):
        if form == FULL:
            links = empty_field((tiles, DIRECTIONS, sites, 3, 3), SINGLE, cupy)
        else:
            links = empty_field((tiles, 4, 2 * sites * 27), np.float32, cupy)
        fill(links, 11 + parity)
        packed.append(PackedLinks(lattice, parity, DIRECTIONS, SINGLE, links, form))
    fields = [empty_field((lattice.half_volume, 3, n), SINGLE, cupy) for _ in range(5)]
    for number, each in enumerate(fields):
        fill(each, number)
    even, odd = packed
    made = Problem((even, odd), CGCoefficients.zeros(fields[0]), *fields)
    made.begin(0.0)
    return made


def fill(array: Array, seed: int) -> None:
    """Numbers between -1 and 1 that depend on seed and place alone."""
    random_numbers.fill_random(array.reshape(-1).view(SINGLE), seed, 0)


def kernels(lattice: Lattice, n: int, form: Links18) -> list[Launch]:
    """All that a problem starts."""
    rows = 3 * lattice.half_volume
    products = [dslash_launch(lattice, DIRECTIONS, SINGLE, n, dots, form) for dots in (False, True)]
    return [
        *products,
        sum_rows_launch(products[1].grid[0], n),
        *(reduction(name, n, SINGLE, rows) for name in ("norms2", "dots", "cg_residual")),
        cuda_cg.cg_advance_launch(n, SINGLE, rows),
    ]


@contextmanager
def part(name: str) -> Iterator[None]:
    """Print how long a part took, or what went wrong in it."""
    began = time.perf_counter()
    try:
        yield
    except Exception:
        print(f"FAILED {name}:\n{traceback.format_exc(limit=-6)}", flush=True)
    else:
        print(f"[{name}: {time.perf_counter() - began:.1f} s]", flush=True)


def seconds(work: Callable[[], None], calls: int = 3) -> float:
    """The shortest time of a call on the device, all devices included."""
    work()
    work()
    times = []
    for _ in range(calls):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return min(times)


def form_of(n: int) -> Links18:
    return FORMS[Packing(block=n).staggered("single", DIRECTIONS)]


class Spread(Device):
    """The devices that share a lattice, measured as one."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        super().__init__()
        meters = []
        for each in ids:
            with cupy.cuda.Device(each):
                meters.append(energy_meter(self.backend))
        self.meters = [] if None in meters else [meter for meter in meters if meter]


@dataclass(frozen=True)
class Setting:
    """A lattice, the devices that share it, and whether one of them had it alone."""

    name: str
    lattice: Lattice
    ids: tuple[int, ...]

    @property
    def share(self) -> int:
        """Part of the time of one GPU that is expected here, as its inverse."""
        return len(self.ids) if self.name == "strong" else 1


@dataclass
class Table:
    """Seconds and joules of what was measured, by setting and case."""

    times: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, at: Setting, case: str, seconds: float, joules: float | None = None, rhs: int = 1) -> None:
        """Print a row; joules: of one call, which `rhs` right-hand sides share."""
        self.times[at.name, case] = seconds
        efficiency = self.times.get(("one", case), nan) / (at.share * seconds)
        energy = "" if joules is None else f"{joules / rhs:.3g}"
        cells = at.name, len(at.ids), at.lattice, case, f"{1e6 * seconds:.1f}", f"{efficiency:.3f}", energy
        print("|", " | ".join(map(str, cells)), "|", flush=True)


def products(at: Setting, table: Table) -> None:
    """A product (both parities, p^H A p) and an iteration of CG, from graphs of many."""
    launches = [kernel for n in (1, 16) for kernel in kernels(at.lattice, n, form_of(n))]
    list(_threads().map(partial(_compiled, device=cupy.cuda.get_device_id()), launches))
    for n in (1, 16):
        with part(f"{at.name}, products, N = {n}"):
            made = problem(at.lattice, n, form_of(n))
            made.begin(np.inf)  # nothing converges or overflows; every field is read and written as ever
            for case, work in (("product", made.product), ("CG from a graph", made.step)):
                many = stream.recorded(partial(_repeat, work), cupy)
                table.add(at, f"{case}, N = {n}", seconds(many) / CALLS)


def _repeat(work: Callable[[], None]) -> None:
    for _ in range(CALLS):
        work()


def iterations(at: Setting, table: Table, methods: Any = METHODS) -> None:
    """Whole iterations in double-single, replacements among them."""
    machine = Spread(at.ids)
    operator = random_operator(machine, at.lattice)
    for method, n in methods:
        with part(f"{at.name}, {method.__name__}, N = {n}"):
            b = random_field(machine, (*operator.shape, n), np.complex128)
            solver = partial(method, 1e-13, precision="double-single")
            table.add(
                at, f"{method.__name__}, N = {n}, iteration", *iteration(machine, solver, operator, b), n
            )


def solves(at: Setting, table: Table) -> None:
    """Whole solves to `TOLERANCE`."""
    machine = Spread(at.ids)
    thin = thermalised(at.lattice, BETA, SEED, "many_gpus", 1, 0, xp=cupy)
    links = hisq_links(thin, at.lattice, boundary="antiperiodic", naik_epsilon=0.0)
    del thin
    operator = NormalOperator(StaggeredDslash(links), MASS)
    for method, n in METHODS:
        with part(f"{at.name}, solve by {method.__name__}, N = {n}"):
            b = random_field(machine, (*operator.shape, n), np.complex128)
            solve = partial(method(TOLERANCE, precision="double-single").solve, operator, b)
            solution = solve()
            took = min(machine.wall_seconds(solve) for _ in range(2))
            table.add(at, f"{method.__name__}, N = {n}, solve", took, machine.joules(solve, took), n)
            print(f"  {solution.iterations} iterations, largest residual {max(solution.residual):.1e}")


PARTS: dict[str, Callable[[Setting, Table], None]] = {
    "products": products,
    "iterations": iterations,
    "solves": solves,
    "probe": partial(iterations, methods=PUBLISHED),
}


def main() -> None:
    """Print the table, a part for all numbers of GPUs before the next."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument(
        "--per-gpu", type=int, nargs=4, default=(32, 32, 32, 48), metavar=("X", "Y", "Z", "T")
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{arguments.gpus} of {cupy.cuda.runtime.getDeviceCount()} devices, the first is {name}\n")
    print("| | GPUs | lattice | | us | efficiency | J / rhs |\n|---|---|---|---|---|---|---|")
    for each in arguments.parts:
        table = Table()
        probe = each == "probe"
        for at in settings((PROBE,) * 4 if probe else tuple(arguments.per_gpu), arguments.gpus):
            if probe and at.name == "strong":
                continue
            with part(f"{each}, {at.name}"), spread_over(at.lattice, at.ids):
                PARTS[each](at, table)
            cupy.get_default_memory_pool().free_all_blocks()


def settings(per_gpu: tuple[int, ...], gpus: int) -> list[Setting]:
    """One GPU, weak and strong."""
    x, y, z, t = per_gpu
    alone, wide, ids = Lattice((x, y, z, t)), Lattice((x, y, z, gpus * t)), tuple(range(gpus))
    return [Setting("one", alone, (0,)), Setting("weak", wide, ids), Setting("strong", alone, ids)]


if __name__ == "__main__":
    main()
