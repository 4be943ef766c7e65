"""One lattice on several GPUs against the same on one: equality, then time of products and iterations of CG.

    python -m workflows.benchmarks.many_gpus [--gpus K] [--per-gpu X Y Z T]

Links and fields are the same numbers for every number of GPUs. Products must have equal bits; what follows
from sums over a field agrees to rounding. Each part prints its own failure and the next one begins: a run on
several GPUs is dear.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any
from unittest.mock import patch

import cupy
import numpy as np

from stages.lqcd.kernels import block_blas, cg_update, stream
from stages.lqcd.kernels import hisq_dslash as dslash
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cuda import cg_update as cuda_cg
from stages.lqcd.kernels.cuda.columns import reduction
from stages.lqcd.kernels.cuda.compile import compile_all
from stages.lqcd.kernels.cuda.devices import partition
from stages.lqcd.kernels.cuda.devices.group import group_of, spread_over
from stages.lqcd.kernels.cuda.hisq_dslash import (
    FULL,
    THIRTEEN,
    Form,
    PackedLinks,
    dslash_launch,
    dslash_tile,
    sum_rows_launch,
)
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import empty_field
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from workflows.benchmarks.machine import Device, random_field
from workflows.benchmarks.solver_iteration import iteration
from workflows.benchmarks.staggered import random_operator

SINGLE = np.dtype(np.complex64)
DIRECTIONS = 16
STEPS = 5
UNEVEN = Lattice((16, 16, 16, 14))
SHIFT = 100.0
"""Of the operator, so large that CG on links that are random numbers behaves."""


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
        fill(self.y, 0, 0.0)
        fill(self.p, 0, 0.0)
        c = self.coefficients
        c.numbers.fill(0)
        c.r2[...] = c.gamma[...] = block_blas.norms2(self.r)
        c.target2[...] = target2


def problem(lattice: Lattice, n: int, form: Form) -> Problem:
    sites = prod(dslash_tile(lattice))
    tiles = lattice.half_volume // sites
    packed = []
    for parity in (EVEN, ODD):
        if form == FULL:
            links = empty_field((tiles, DIRECTIONS, sites, 3, 3), SINGLE, cupy)
        else:
            links = empty_field((tiles, 4, 2 * sites * (18 + 12 + 1)), np.float32, cupy)
        fill(links, 11 + parity)
        packed.append(PackedLinks(lattice, parity, DIRECTIONS, SINGLE, links, form))
    fields = [empty_field((lattice.half_volume, 3, n), SINGLE, cupy) for _ in range(5)]
    for number, field in enumerate(fields):
        fill(field, number)
    even, odd = packed
    made = Problem((even, odd), CGCoefficients.zeros(fields[0]), *fields)
    made.begin(0.0)
    return made


@cache
def _filling() -> Any:
    return cupy.ElementwiseKernel(
        "uint64 seed, float32 scale",
        "float32 y",
        "unsigned long long h = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;"
        "h ^= h >> 29; h *= 0xBF58476D1CE4E5B9ull; h ^= h >> 32;"
        "y = scale * ((h >> 40) * (1.0f / 16777216) - 0.5f)",
        "fill_with_numbers",
    )


def fill(array: Array, seed: int, scale: float = 1.0) -> None:
    """Numbers between -1/2 and 1/2, times `scale`, that depend on seed and place alone."""
    _filling()(np.uint64(seed), np.float32(scale), array.reshape(-1).view(np.float32))


def kernels(lattice: Lattice, n: int, form: Form) -> list[Launch]:
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
        print(f"FAILED {name}:\n{traceback.format_exc(limit=6)}", flush=True)
    else:
        print(f"[{name}: {time.perf_counter() - began:.1f} s]", flush=True)


def results(lattice: Lattice, n: int, form: Form) -> dict[str, Array]:
    """Product, sums and fields after some iterations, in arrays on the first device."""
    made = problem(lattice, n, form)
    found: dict[str, Array] = {}
    even, odd = made.links
    for name, links in (("odd", odd), ("even", even)):
        dslash.hisq_dslash(links, made.r, made.between)
        found[f"D {name}"] = on_first(made.between)
    found["norms2"] = block_blas.norms2(made.r)
    found["dots"] = block_blas.dots(made.r, made.between)
    recorded = stream.recorded(made.step, cupy)
    for _ in range(STEPS):
        recorded()
    for name in ("y", "p", "r"):
        found[f"{name} of CG"] = on_first(getattr(made, name))
    found["numbers of CG"] = made.coefficients.numbers.copy()
    stream.finish(made.r)
    return found


def on_first(field: Array) -> Array:
    """A copy in memory of the first device, which its own kernel reads from the others."""
    copy = cupy.empty(field.shape, field.dtype)
    cupy.add(field, 0, out=copy)
    return copy


def compared(one: dict[str, Array], many: dict[str, Array]) -> str:
    """Elements that differ and, of those, the largest difference over the largest element."""
    words = []
    for name, a in one.items():
        b = many[name]
        differing = int((a.view(np.uint32) != b.view(np.uint32)).sum())
        largest = float(abs(a - b).max() / abs(a).max())
        words.append(
            f"{name}: {'equal bits' if not differing else f'{differing} words differ, {largest:.1e}'}"
        )
    return "; ".join(words)


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


def timed(lattice: Lattice, n: int, form: Form, calls: int) -> tuple[float, float]:
    """Seconds of a product (both parities, p^H A p) and of an iteration of CG, from graphs of many."""
    made = problem(lattice, n, form)
    made.begin(np.inf)  # nothing converges or overflows; every field is read and written as ever

    def many(work: Callable[[], None]) -> Callable[[], None]:
        def calls_of_it() -> None:
            for _ in range(calls):
                work()

        return stream.recorded(calls_of_it, cupy)

    return seconds(many(made.product)) / calls, seconds(many(made.step)) / calls


def form_of(n: int) -> Form:
    return THIRTEEN if n <= dslash.NARROW else FULL


def orders(lattice: Lattice, ids: tuple[int, ...]) -> None:
    """Print the time of a product for other numbers of tiles between two that read other devices."""
    for inner in (1, 2, 3, 5, 7):
        group_of.cache_clear()
        with part(f"order {inner}"), patch.object(partition, "INNER", inner), spread_over(lattice, ids):
            found = [timed(lattice, n, form_of(n), 10)[0] for n in (1, 16)]
            print(
                f"{inner} tiles between: {1e6 * found[0]:.1f} us at N = 1, {1e6 * found[1]:.1f} us at N = 16"
            )
    group_of.cache_clear()


def iterations(lattice: Lattice) -> Iterator[tuple[str, float]]:
    """Seconds of whole iterations in double-single, replacements among them."""
    device = Device()
    with part("operator"):
        operator = random_operator(device, lattice)
        for method, n in ((BatchedCG, 1), (BatchedCG, 16), (BlockCGrQ, 16)):
            with part(f"{method.__name__}, N = {n}"):
                b = random_field(device, (*operator.shape, n), np.complex128)
                solver = partial(method, 1e-13, inner="single")
                yield f"{method.__name__} {n}", iteration(device, solver, operator, b)[0]


def main() -> None:
    """Print what is equal, then the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument(
        "--per-gpu", type=int, nargs=4, default=(32, 32, 32, 48), metavar=("X", "Y", "Z", "T")
    )
    arguments = parser.parse_args()
    runtime, k = cupy.cuda.runtime, arguments.gpus
    x, y, z, t = arguments.per_gpu
    alone, wide = Lattice((x, y, z, t)), Lattice((x, y, z, k * t))
    ids = tuple(range(k))
    with part("devices"):
        names = {
            runtime.getDeviceProperties(each)["name"].decode() for each in range(runtime.getDeviceCount())
        }
        peers = [runtime.deviceCanAccessPeer(0, each) for each in ids[1:]]
        print(f"{runtime.getDeviceCount()} devices: {names}; {k} used, peer access from the first: {peers}")
    problems = [(UNEVEN, n, form) for n, form in ((1, THIRTEEN), (1, FULL), (8, FULL), (16, FULL))]
    times = [(n, form_of(n)) for n in (1, 16)]
    with part("compilation"):
        compile_all([kernel for p in problems for kernel in kernels(*p)])
        compile_all([kernel for n, form in times for kernel in kernels(alone, n, form)])
    one = []
    for case in problems:
        with part(f"one GPU {case}"):
            one.append(results(*case))
    for parts in (ids, 2 * ids):
        with part(f"parts on GPUs {parts}"), spread_over(UNEVEN, parts):
            compile_all([kernel for p in problems for kernel in kernels(*p)])
            for case, expected in zip(problems, one, strict=False):
                with part(f"GPUs {parts} {case[0]} N = {case[1]} {case[2]}"):
                    print(compared(expected, results(*case)))
    table: dict[tuple[str, str], tuple[float, ...]] = {}
    for n, form in times:
        with part(f"times, one GPU, N = {n}"):
            table["one", f"product, N = {n}"] = timed(alone, n, form, 10)
    for name, lattice in (("weak", wide), ("strong", alone)):
        with part(name), spread_over(lattice, ids):
            compile_all([kernel for n, form in times for kernel in kernels(lattice, n, form)])
            for n, form in times:
                with part(f"times, {name}, N = {n}"):
                    table[name, f"product, N = {n}"] = timed(lattice, n, form, 10)
    with part("orders"):
        orders(wide, ids)
    for name, lattice, devices in (("one", alone, ids[:1]), ("weak", wide, ids), ("strong", alone, ids)):
        with part(f"iterations, {name}"), spread_over(lattice, devices):
            for kind, took in iterations(lattice):
                table[name, kind] = (took,)
    printed(alone, k, table)


def printed(alone: Lattice, k: int, table: dict[tuple[str, str], tuple[float, ...]]) -> None:
    """The table of times and of efficiencies against one GPU."""
    print(f"\n| {alone} per GPU | GPUs | us | efficiency |\n|---|---|---|---|")
    for (name, kind), times in table.items():
        share, one = k if name == "strong" else 1, table.get(("one", kind), (np.nan,) * len(times))
        for what, own, first in zip(("", ", iteration"), times, one, strict=False):
            gpus = 1 if name == "one" else k
            print(
                f"| {name}, {kind}{what} | {gpus} | {1e6 * own:.1f} | {first / (share * own):.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
