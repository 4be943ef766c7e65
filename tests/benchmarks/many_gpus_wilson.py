"""Wilson-clover operators on several GPUs against the same on one: products, BiCGstab, a multigrid solve.

    python tests/benchmarks/many_gpus_wilson.py [--gpus K] [--per-gpu X Y Z T] [--lattice X Y Z T]
    [--mass -0.56] [--sweeps 50] [--parts products multigrid]

Weak scaling, on random links: the Schur complement in single precision, of two dslashes with clover matrices,
from graphs of ten; and whole iterations of BiCGstab with residuals in double. Strong and weak scaling: a
multigrid solve of 16 right-hand sides on a quenched configuration, and what its cycle consists of.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import cupy
import numpy as np

from many_gpus import part, seconds
from script import quenched, wilson
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.wilson_links import Anisotropy, WilsonLinks
from stages.lqcd.kernels import random_numbers, smearing, stream
from stages.lqcd.kernels.cuda.devices.group import spread_over
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import converted, empty_field, field_like, zeros_like
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.multigrid.levels import default_levels, multigrid_of
from stages.lqcd.solvers.bicgstab import BiCGstab
from workflows.benchmarks.machine import Device
from workflows.benchmarks.solver_iteration import iteration

SEED, CALLS, WIDTHS, RHS, RESTART = 577, 10, (1, 16), 16, 5
RANDOM_MASS, RANDOM_CSW = -0.5, 0.3
"""Of an operator on random links, whose solves then neither end at once nor diverge."""

Times = dict[str, float]


def random_operator(lattice: Lattice) -> WilsonOperator:
    links = empty_field((4, 2, lattice.half_volume, 3, 3), np.complex128, cupy)
    random_numbers.fill_random(links, SEED, 0)
    matrices = links.reshape(-1, 3, 3)
    smearing.special_unitary(matrices, matrices)
    periodic = ("periodic",) * 4
    fields = WilsonLinks(links, (RANDOM_CSW, RANDOM_CSW), lattice, periodic, Anisotropy(), 0.0)
    return WilsonOperator(WilsonDslash(fields), RANDOM_MASS)


def random_field(shape: tuple[int, ...], dtype: Any) -> Array:
    field = empty_field(shape, np.complex128, cupy)
    random_numbers.fill_random(field, SEED, 1)
    return converted(field, dtype)


def products(lattice: Lattice) -> Times:
    """Seconds of products in single precision, and of iterations of BiCGstab."""
    S, times = WilsonSchur(random_operator(lattice)), Times()
    for n in WIDTHS:
        for name, measure in (("product", product), ("BiCGstab", bicgstab)):
            with part(f"{name}, N = {n}"):
                times[f"{name}, N = {n}"] = measure(S, n)
    return times


def product(S: WilsonSchur, n: int) -> float:
    """Seconds of S in single precision."""
    M = S.M.astype(np.complex64)
    x = random_field((*S.shape, n), np.complex64)
    between, out = field_like(x), field_like(x)
    even, odd = M.clover_inverse(EVEN), M.clover_inverse(ODD)

    def many() -> None:
        for _ in range(CALLS):
            M.dslash.apply_to(ODD, x, between, clover=("hop", odd))
            M.dslash.apply_to(EVEN, between, out, diagonal=x, a=1.0, b=-0.25, clover=("hop", even))

    return seconds(stream.recorded(many, cupy)) / CALLS


def bicgstab(S: WilsonSchur, n: int) -> float:
    """Seconds of an iteration, replacements of residuals among them."""
    b = random_field((*S.shape, n), np.complex128)
    return iteration(Device(), partial(BiCGstab, 1e-13, precision="double-single"), S, b)[0]


def solves(lattice: Lattice, mass: float, sweeps: int) -> Times:
    """Seconds of a setup, of a solve, and of what a cycle consists of."""
    device, times = Device(), Times()
    levels = [{"smoothing": 8, "refinements": 2, **level} for level in default_levels(lattice)]
    thin = quenched(lattice, "multigrid", beta=6.0, seed=SEED, sweeps=sweeps, xp=cupy)
    M = wilson(thin, lattice, mass, 1.0)
    del thin
    multigrid = multigrid_of(levels, SEED)
    with part("first setup"):
        multigrid.setup(M)
    with part("setup"):
        hierarchy = multigrid.setup(M)
        times["setup"] = hierarchy.seconds
    b = random_field((*hierarchy.system.shape, RHS), np.complex128)
    solver = hierarchy.solver(1e-10, restart=RESTART)
    with part("first solve"):
        solver.solve(hierarchy.system, b)
    with part("solve"):
        solution = solver.solve(hierarchy.system, b)
        print(f"{solution.iterations} iterations, largest residual {solution.residual.max():.2g}")
        times["solve"] = solution.seconds
        times["an iteration"] = solution.seconds / solution.iterations
    for name, work in pieces(hierarchy, b):
        with part(name):
            times[name] = shortest(device, work)
    return times


def pieces(hierarchy: Hierarchy, b: Array) -> Iterator[tuple[str, Callable[[], object]]]:
    """Parts of a cycle by themselves, as launches that the host starts."""
    x, cycle = converted(b, np.complex64), cast(Any, hierarchy.cycle)
    yield "a cycle, replayed", lambda: hierarchy.apply(x)
    number = 0
    while cycle is not None:
        yield f"level {number}: cycle", partial(cycle.apply, x)
        level = cycle.levels[0]
        S = level.A.operator
        yield f"level {number}: system", partial(S.apply, x)
        yield f"level {number}: smoother", partial(level.smoother.improve, S, x, zeros_like(x))
        defect = level.A.defect(x)
        coarse = level.transfer.restrict(defect)
        yield f"level {number}: restriction", partial(level.transfer.restrict, defect)
        yield f"level {number}: prolongation", partial(level.transfer.add_prolonged, coarse, x)
        yield f"below level {number}", partial(cycle.solve_below, coarse)
        cycle, number = cycle.below, number + 1
        if cycle is not None:
            x, _ = cycle.levels[0].A.prepare(coarse)


def shortest(device: Device, work: Callable[[], object]) -> float:
    work()
    return min(device.wall_seconds(work) for _ in range(3))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    extents: dict[str, Any] = {"type": int, "nargs": 4, "metavar": ("X", "Y", "Z", "T")}
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--per-gpu", default=(32, 32, 32, 48), **extents)
    parser.add_argument("--lattice", default=(32, 32, 32, 64), **extents)
    parser.add_argument("--mass", type=float, default=-0.56)
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--parts", nargs="+", default=["products", "multigrid"])
    arguments = parser.parse_args()
    k, ids = arguments.gpus, tuple(range(arguments.gpus))
    if "products" in arguments.parts:
        alone, wide = lattices(arguments.per_gpu, k)
        one, weak = (
            spread(lattice, devices, products, lattice)
            for lattice, devices in ((alone, ids[:1]), (wide, ids))
        )
        printed(f"weak, {alone} per GPU", k, one, weak, 1)
    if "multigrid" in arguments.parts:
        alone, wide = lattices(arguments.lattice, k)
        one, strong, weak = (
            spread(lattice, devices, solves, lattice, arguments.mass, arguments.sweeps)
            for lattice, devices in ((alone, ids[:1]), (alone, ids), (wide, ids))
        )
        printed(f"strong, {alone}", k, one, strong, k)
        printed(f"weak, {alone} per GPU", k, one, weak, 1)


def lattices(extents: Sequence[int], gpus: int) -> tuple[Lattice, Lattice]:
    """The lattice that one GPU has, and the one that has as many sites for each."""
    x, y, z, t = extents
    return Lattice((x, y, z, t)), Lattice((x, y, z, gpus * t))


def spread(
    lattice: Lattice, devices: tuple[int, ...], measure: Callable[..., Times], *arguments: Any
) -> Times:
    """Times on these devices; none where it fails."""
    times = Times()
    with part(f"{measure.__name__} on GPUs {devices}"), spread_over(lattice, devices):
        times = measure(*arguments)
    cupy.get_default_memory_pool().free_all_blocks()
    return times


def printed(title: str, k: int, one: Times, many: Times, gain: int) -> None:
    last = "times faster" if gain > 1 else "efficiency"
    print(f"\n| {title} | 1 GPU ms | {k} GPUs ms | {last} |\n|---|---|---|---|")
    for name, alone in one.items():
        together = many.get(name, np.nan)
        print(f"| {name} | {1e3 * alone:.4g} | {1e3 * together:.4g} | {alone / together:.3f} |", flush=True)


if __name__ == "__main__":
    main()
