"""s-step conjugate gradients on the HISQ normal operator: parts of an iteration, solves beside batched CG.

    python tests/benchmarks/sstep_speed.py [--backend cpu] [--gpus 2] [--lattice X Y Z T] [--rhs 1 4]

Links are quenched ones. Parts are timed as CUDA graphs of several calls, so that the host does not matter;
solves by the clock, every residual computed anew from x in double. On a device results of the kernels are
first compared with those of the plain NumPy ones. With --gpus 2 the lattice lies on so many.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from script import PrintedTable, arguments_of, quenched
from stages.lqcd.dirac.operator import LinearOperator, whole_storage
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.kernels import block_blas, cg_update, powers, stream
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.dispatch import Array, as_numpy, kernels_of
from stages.lqcd.kernels.fields import field_like, zeros_like
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.solution import Solution
from stages.lqcd.solvers.sstep.block import Block, Fields, Ingredients, change_of
from stages.lqcd.solvers.sstep.polynomials import CHEBYSHEV, NEWTON, Polynomials, polynomials
from stages.lqcd.solvers.sstep.spectrum import known_ritz_values
from stages.lqcd.solvers.sstep.sstep_cg import SStepCG
from workflows.benchmarks.machine import Machine, random_field

CALLS = 10
"""Of a part in one graph."""
PRECISIONS: dict[str, tuple[type, tuple[str, ...]]] = {
    "double-single": (np.complex64, (powers.DOUBLE,)),
    "double": (np.complex128, (powers.DOUBLE, powers.CRAY, powers.DOUBLED)),
}
"""Type of the iteration and precisions of Gram matrices, by the solver's precision."""
MICRO = 1e6


def main() -> None:
    """Print the tables."""
    given = arguments_of(
        __doc__,
        lattice=(16, 16, 16, 48),
        machine="cuda",
        options={
            "rhs": [1, 4],
            "steps": [4, 8, 16],
            "mass": [0.05, 0.02, 0.005],
            "basis": [NEWTON, CHEBYSHEV],
            "precision": list(PRECISIONS),
            "tolerance": 1e-10,
            "beta": 6.0,
            "samples": 4,
            "only": ("both", "parts", "solves"),
            "gpus": 1,
        },
    )
    with devices_of(given):
        measure(given)


def devices_of(given: Namespace) -> AbstractContextManager[Any]:
    """A block in which fields lie on as many GPUs as are wanted."""
    if given.machine.backend == "cpu":
        return nullcontext()
    from stages.lqcd.kernels.cuda.devices.group import spread_over

    return spread_over(given.lattice, tuple(range(given.gpus)))


def measure(given: Namespace) -> None:
    """The tables on these devices."""
    machine = given.machine
    print(f"{given.gpus} x {machine.name}, {given.lattice}")
    if machine.backend == "cuda":
        compiled_ahead(given)
        check(machine)
    thin = quenched(given.lattice, "sstep", beta=given.beta, seed=31, sweeps=20, xp=machine.xp)
    links = hisq_links(thin, given.lattice, boundary="antiperiodic", naik_epsilon=0.0)
    dslash = StaggeredDslash(links, packing=Packing(block=2 * max(given.rhs)))
    del thin, links
    operator = NormalOperator(dslash, given.mass[len(given.mass) // 2])
    if given.only != "solves":
        for precision, rhs in product(given.precision, given.rhs):
            iterations(given, operator, precision, rhs)
    if given.only != "parts":
        for rhs, mass in product(given.rhs, given.mass):
            solves(given, NormalOperator(dslash, mass), rhs)


def iterations(given: Namespace, operator: NormalOperator, precision: str, rhs: int) -> None:
    """Microseconds of an iteration and of its parts, all of them over the steps of a block."""
    dtype, grams = PRECISIONS[precision]
    machine, A = given.machine, operator.astype(dtype)
    b = random_field(machine, (*A.shape, rhs), dtype)
    ritz = known_ritz_values(A, A.dtype)
    print(f"\nAn iteration in {precision}, N = {rhs}, us: of a block its part")
    plain = batched_iteration(machine, A, b)
    print(
        f"batched CG: {MICRO * plain:.1f}, of which the product {MICRO * product_of(machine, A, b):.1f}",
        end="",
    )
    wide = random_field(machine, (*A.shape, 2 * rhs), dtype)
    print(f"; that of 2 N right-hand sides {MICRO * product_of(machine, A, wide):.1f}")
    columns = ("Gram", "coordinates", "update", "whole", "of CG")
    table = PrintedTable("basis", "s", "Gram matrix", "products", *columns)
    for s in given.steps:
        for basis, gram in ((basis, gram) for basis in given.basis for gram in grams):
            of = polynomials(basis, s, ritz)
            block = block_of(A, b, of, s, gram)
            parts = (block.make_powers, block.sum_gram, block.take_steps, partial(block.update, s))
            seconds = [repeated_seconds(machine, part) / s for part in parts]
            whole = repeated_seconds(machine, partial(all_of, parts)) / s
            shown = [round(MICRO * each, 2) for each in (*seconds, whole)]
            table.add(basis, s, gram, *shown, round(whole / plain, 3))


def block_of(A: LinearOperator, b: Array, of: Polynomials, s: int, gram: str) -> Block:
    """A block of steps that does not converge."""
    fields = Fields(b, s, A.dtype)
    fields.p[...], fields.r[...] = b, b
    fields.y[...] = 0
    return Block(A, fields, Ingredients(of, s, gram, float(of.gamma[0]), False, True), s, True)


def all_of(parts: Sequence[Callable[[], None]]) -> None:
    for part in parts:
        part()


def repeated_seconds(machine: Machine, part: Callable[[], None]) -> float:
    """Seconds of one call among those of a graph; on the host of one call."""
    calls = CALLS if machine.backend == "cuda" else 1
    return machine.seconds(stream.repeated(partial(all_of, calls * [part]), machine.xp)) / calls


def product_of(machine: Machine, A: LinearOperator, b: Array) -> float:
    return repeated_seconds(machine, whole_storage(A).product(b, field_like(b)))


def batched_iteration(machine: Machine, A: LinearOperator, b: Array) -> float:
    """Seconds of a step of batched CG, of coefficients that leave fields finite."""
    y, p, r, ap = zeros_like(b), b.copy(), b.copy(), field_like(b)
    numbers = CGCoefficients.zeros(b)
    numbers.target2[...] = 0
    numbers.r2[...] = numbers.gamma[...] = block_blas.norms2(r)
    apply = whole_storage(A).product(p, ap, numbers.pap)
    parts = (
        partial(cg_update.cg_advance, y, p, r, numbers),
        apply,
        partial(cg_update.cg_residual, r, ap, numbers),
    )
    return repeated_seconds(machine, partial(all_of, parts))


def solves(given: Namespace, A: NormalOperator, rhs: int) -> None:
    """Iterations and seconds to the tolerance, means over blocks of random right-hand sides.

    In a block of several their scales differ, and one is zero.
    """
    machine, samples = given.machine, max(2, given.samples // rhs)
    scales = machine.xp.asarray([1, 1e-8, 0, 1e6, *[1] * rhs][:rhs])
    bs = [scales * random_field(machine, (*A.shape, rhs), np.complex128, seed) for seed in range(samples)]
    title = f"Solves, m = {A.mass}, N = {rhs}, to {given.tolerance:g}: {samples} blocks of right-hand sides"
    print(f"\n{title}; spectrum up to {known_ritz_values(A, A.dtype)[-1]:.3f}")
    columns = ("iterations", "of CG", "least", "most", "ms", "of CG", "residual", "steps", "us an iteration")
    table = PrintedTable("precision", "solver", "s", "Gram matrix", *columns)
    for precision in given.precision:
        _, grams = PRECISIONS[precision]
        solver: KrylovSolver = BatchedCG(given.tolerance, precision=precision)
        plain = add_solves(table, machine, solver, A, bs, (precision, "batched CG", None, None), None)
        for basis in given.basis:
            for s, gram in ((s, gram) for s in given.steps for gram in grams):
                if gram == powers.CRAY:
                    continue
                options: dict[str, Any] = {"s": s, "basis": basis, "gram": gram, "replace": False}
                solver = SStepCG(given.tolerance, precision=precision, **options)
                add_solves(table, machine, solver, A, bs, (precision, basis, s, gram), plain)


def add_solves(
    table: PrintedTable,
    machine: Machine,
    solver: KrylovSolver,
    A: NormalOperator,
    bs: list[Array],
    names: tuple[object, ...],
    plain: np.ndarray | None,
) -> np.ndarray:
    """A line; iterations and seconds of each block's solve, ``[2, blocks]``, after one that compiles."""
    solver.solve(A, bs[0], on_failure="return")
    numbers, worst, steps = [], 0.0, list[int]()
    for b in bs:
        solutions: list[Solution] = []

        def solve(b: Array = b, to: list[Solution] = solutions) -> None:
            to.append(solver.solve(A, b, on_failure="return"))

        seconds = machine.wall_seconds(solve)
        numbers.append((solutions[0].iterations, seconds))
        missed, norms = (as_numpy(block_blas.norms(each)) for each in (b - A.apply(solutions[0].x), b))
        worst = max(worst, float((missed / np.where(norms > 0, norms, 1)).max()))
        steps += solutions[0].extras.get("steps", [])
    found = np.array(numbers).T
    ratios = np.ones_like(found) if plain is None else found / plain
    lengths = f"{min(steps)} to {max(steps)}" if steps else None
    iterations, seconds = found.mean(axis=1)
    spread = (round(float(each), 3) for each in (ratios[0].mean(), ratios[0].min(), ratios[0].max()))
    each = round(MICRO * seconds / iterations, 1)
    shown = (round(1e3 * seconds, 2), round(float(ratios[1].mean()), 3), f"{worst:.1e}", lengths, each)
    table.add(*names, round(iterations, 1), *spread, *shown)
    return found


def check(machine: Machine) -> None:
    """Kernels on the device against the plain NumPy ones, on few rows: the largest relative deviations."""
    table = PrintedTable("type", "s", "N", "Gram", "double-double", "Cray", "coordinates", "update")
    for dtype, s, rhs in (
        (np.complex64, 8, 1),
        (np.complex64, 8, 4),
        (np.complex128, 8, 4),
        (np.complex128, 16, 1),
    ):
        values: Any = np.linspace(0.05, 1, 3000).astype(dtype)[:, None]
        rng = np.random.default_rng(5)
        of = polynomials(CHEBYSHEV, s, np.array([0.05, 1.0]))
        fields: list[Any] = [
            (rng.normal(size=(3000, 2 * rhs)) + 1j * rng.normal(size=(3000, 2 * rhs))).astype(dtype)
        ]
        for i in range(s):
            v = values * fields[i] - of.theta[i].astype(values.real.dtype) * fields[i]
            fields.append(((v - (of.sigma[i] * fields[i - 1] if i else 0)) / of.gamma[i]).astype(dtype))
        with kernels_of("reference"):
            results = [results_of(xp, np.stack(fields), of) for xp in (np, machine.xp)]
        deviations = [f"{deviation(*pair):.1e}" for pair in zip(*results, strict=True)]
        table.add(np.dtype(dtype), s, rhs, *deviations)


def results_of(xp: Any, fields: np.ndarray, of: Polynomials) -> list[np.ndarray]:
    """Gram matrices in three precisions, the path, and updated fields."""
    paired, rhs, results = xp.asarray(fields), fields.shape[-1] // 2, []
    for precision in (powers.DOUBLE, powers.DOUBLED, powers.CRAY):
        gram = powers.gram(paired, precision, powers.Gram.empty(paired))
        results.append(as_numpy(gram.high) + as_numpy(gram.low))
    path, zeros = powers.Path.empty(paired, change_of(of, len(fields) - 1)), xp.zeros(rhs)
    restarted = xp.ones(rhs)
    powers.conjugate_gradients(gram, zeros, restarted, 1e-20, True, path)
    y, last, image = (xp.zeros_like(paired[0, :, :rhs]) for _ in range(3))
    powers.update(y, paired, last, image, path, restarted, len(fields) - 2)
    updated = np.concatenate([as_numpy(each).T for each in (y, paired[0], last, image)])
    return [*results, as_numpy(path.r), updated]


def deviation(one: np.ndarray, other: np.ndarray) -> float:
    return float(abs(one - other).max() / abs(one).max())


def compiled_ahead(given: Namespace) -> None:
    """Compile what takes longest, many kernels at a time."""
    from stages.lqcd.kernels.cuda import hisq_dslash, hisq_packing
    from stages.lqcd.kernels.cuda import powers as on_device
    from stages.lqcd.kernels.cuda.compile import compile_all

    launches, rows = [], 3 * given.lattice.half_volume
    for dtype, grams in (PRECISIONS[each] for each in given.precision):
        kind = np.dtype(dtype)
        for n in given.rhs:
            precision = "single" if kind == np.complex64 else "double"
            form = hisq_packing.FORMS[Packing(block=2 * max(given.rhs)).staggered(precision, 16)]
            for width, dots in ((n, False), (n, True), (2 * n, False)):
                launches.append(hisq_dslash.dslash_launch(given.lattice, 16, kind, width, dots, form))
            for s in given.steps:
                launches.append(on_device.update_launch(s, n, kind, rows))
                launches.append(on_device.gram_launch(s, n, kind, rows))
                for gram in grams:
                    doubled = gram != powers.DOUBLE
                    if doubled:
                        launches.append(on_device.exact_gram_launch(s, n, kind, rows, gram))
                    launches.append(on_device.gram_sum_launch(s, n, doubled))
                    launches.append(on_device.coordinates_launch(s, n, doubled))
    missing = len(set(launches)) - len(compile_all(list(dict.fromkeys(launches))))
    print(f"{len(set(launches))} kernels compiled ahead, {missing} refused by the device")


if __name__ == "__main__":
    main()
