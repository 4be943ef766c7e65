"""Costs and gains of double, single and half precision for Wilson quarks: the figures of arXiv:0911.3191.

    python tests/benchmarks/mixed_precision.py [--backend cuda] [--lattice 8 8 8 16] [--csw 1]
    [--mass m ...] [--rhs 1] [--parts time rates memory iterations errors roofline] [--plot time.svg]

The even-odd system of one quenched configuration, antiperiodic in time, random sources; residuals are in
double. Tables, in the order of `--parts`:

time        BiCGstab and conjugate gradients on the normal equations (CG) by mass: iterations, replacements
            of residuals, seconds, gain over double. At the first mass a whole solve goes before, which
            compiles, at others one of two iterations, which packs links; of `--repeats` the shortest counts.
            `--plot` draws it.
rates       GFLOP/s of the dslash D, of the Schur complement S of two dslashes and clover matrices, of the
            products in a solve at the first mass, divided by the time of all of it, and the ratio to S alone
memory      bytes per site: links and clover matrices, and fields of a solver for one right-hand side, as they
            are forecast (`tests/benchmarks/solver_memory.py` measures them)
iterations  of reliable updates and of defect correction (`tests/benchmarks/mixed_iterations.py`)
errors      of the dslash by form of links and fields: quantiles (`tests/benchmarks/storage_forms.py`)
roofline    at the first mass: bytes of an iteration per even site and right-hand side, each number that a
            kernel reads or writes counted once; its time at the copy bandwidth and in the solve, replacements
            among the latter; time of a solve around its iterations, by one of two; gains over double: by the
            bytes of an iteration, allowed (all bytes of a solve at the copy bandwidth and the time around),
            measured. Clover matrices are counted whatever csw is
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from mixed_iterations import METHODS, NAMES, columns, counted, iterations
from script import SMALL, PrintedTable, arguments_of, quenched, wilson
from stages.ensemble.wilson_operator import operator_bytes
from stages.lqcd.dirac.wilson import DSLASH_FLOPS
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.kernels import short_numbers
from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.lattice.geometry import EVEN, Lattice
from stages.lqcd.solvers.named import PRECISIONS, REGULAR
from stages.lqcd.solvers.solution import Solution, SolveStatus
from storage_forms import error_table
from workflows.benchmarks.machine import Machine, Work, random_field
from workflows.benchmarks.speed import DTYPES
from workflows.benchmarks.wilson import CLOVER_NUMBERS, schur_cost

SEED, PACKING = 811, 2
"""PACKING: iterations of a solve that packs links."""
SOLVES = tuple(product(METHODS, PRECISIONS))
COLOURS = {"double": "#0072b2", "double-single": "#e69f00", "double-half": "#d55e00"}
STYLES: dict[str, dict[str, str]] = {
    "BiCGstab": {"marker": "o", "linestyle": "-"},
    "CG": {"marker": "s", "linestyle": "--"},
}

DOUBLE, SINGLE = DTYPES["double"], DTYPES["single"]

SPINOR_BYTES = {"double": 16 * COMPONENTS, "double-single": 8 * COMPONENTS, "double-half": 4 * COMPONENTS + 4}
PRODUCT, ADJOINT, REPLACEMENT = 5, 7, 12
"""Spinors that pass in S: source, the field between written and read, diagonal, result; S^dag has a pass with
A^-1 before its hops, in half one that takes |S p|^2, too; a replacement takes S, b - S x, a norm and x += y.
"""

UPDATES, CORRECTIONS = {"BiCGstab": 4 + 2 + 3 + 3 + 4, "CG": 3 + 3}, 2
"""Spinors of the updates of p, alpha, r, omega and r, and of p and r; those of y, which is single in half."""


@dataclass(frozen=True, eq=False)
class Study:
    """One configuration and its right-hand sides, and the solves that tables share."""

    machine: Machine
    lattice: Lattice
    thin: Array
    arguments: Namespace
    solved: dict[tuple[float, str, str], Solution] = field(default_factory=dict)

    @property
    def rhs(self) -> int:
        return self.arguments.rhs

    @cache  # noqa: B019 - a script has one study
    def system(self, mass: float) -> WilsonSchur:
        """The symmetric Schur complement on the even sites."""
        return WilsonSchur(wilson(self.thin, self.lattice, mass, self.arguments.csw, self.rhs))

    def sources(self, dtype: Any = DOUBLE) -> Array:
        """Random right-hand sides on one parity."""
        return random_field(self.machine, (self.lattice.half_volume, COMPONENTS, self.rhs), dtype, SEED)

    def solve(self, mass: float, method: str, precision: str) -> Solution:
        """The shortest of some solves, without its x."""
        if (mass, method, precision) not in self.solved:
            make, (A, b), asked = METHODS[method], (self.system(mass), self.sources()), self.arguments
            untimed = asked.limit if mass == asked.mass[0] else PACKING
            make(asked.tolerance, untimed, precision).solve(A, b, on_failure="return")
            solver = make(asked.tolerance, asked.limit, precision)
            runs = (solver.solve(A, b, on_failure="return") for _ in range(asked.repeats))
            shortest = min(runs, key=lambda run: run.seconds)
            self.solved[mass, method, precision] = replace(shortest, x=np.empty(0))
        return self.solved[mass, method, precision]

    def brief(self, mass: float, method: str, precision: str) -> Solution:
        """The shortest of some solves that stop after two iterations."""
        solver, A = METHODS[method](self.arguments.tolerance, PACKING, precision), self.system(mass)
        runs = (solver.solve(A, self.sources(), on_failure="return") for _ in range(3))
        return min(runs, key=lambda run: run.seconds)

    def products(self, precision: str) -> tuple[Work, Work]:
        """D and S at the first mass, in a precision."""
        A = self.system(self.arguments.mass[0]).astype(DOUBLE if precision == "double" else SINGLE)
        x: Any = self.sources(A.dtype)
        x = short_numbers.to_half(x) if precision == "double-half" else x
        out = short_numbers.numbers_like(x)
        through = partial(A.apply_through, x, short_numbers.numbers_like(x), out)
        return partial(A.M.dslash.apply_to, EVEN, x, out), through


def main() -> None:
    """Print the tables that the arguments ask for."""
    problem = {"beta": 5.7, "csw": 1.0, "sweeps": 40, "mass": [-0.3, -0.4, -0.5, -0.55]}
    options = {**problem, "tolerance": 1e-8, "limit": 5000, "rhs": 1, "repeats": 1}
    options |= {"parts": list(TABLES), "plot": Path}
    arguments = arguments_of(__doc__, lattice=SMALL, machine="cpu", options=options)
    machine, lattice = arguments.machine, arguments.lattice
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    thin = quenched(lattice, "mixed precision", **chain, xp=machine.xp)
    print(f"{machine.name}; {lattice}, beta = {arguments.beta:g}, csw = {arguments.csw:g}, ", end="")
    print(f"to {arguments.tolerance:g}, N = {arguments.rhs}.")
    study = Study(machine, lattice, thin, arguments)
    for part in arguments.parts:
        print(f"\n## {part}", flush=True)
        TABLES[part](study)


def times(study: Study) -> None:
    """Print the time to solution by mass, method and precision."""
    table = PrintedTable(
        *("m", "solver", "precision", "iterations", "replacements", "s", "gain over double", "residual")
    )
    for mass, (method, precision) in product(study.arguments.mass, SOLVES):
        run, double = study.solve(mass, method, precision), study.solve(mass, method, "double")
        gain = double.seconds / run.seconds
        counts = counted(run), run.extras["replacements"]
        table.add(mass, method, precision, *counts, run.seconds, gain, float(run.residual.max()))
    if study.arguments.plot:
        plot(study, study.arguments.plot)


def rates(study: Study) -> None:
    """Print the rates of kernels and of solvers by precision, in GFLOP/s."""
    names = [name for method in METHODS for name in (method, "of S")]
    table = PrintedTable("precision", "D", "S", *names)
    vectors, first = study.lattice.half_volume * study.rhs, study.arguments.mass[0]
    flops = schur_cost(study.rhs, DOUBLE.itemsize).flops
    for precision in PRECISIONS:
        dslash, schur = map(study.machine.seconds, study.products(precision))
        rate = flops * vectors / schur
        cells: list[object] = [DSLASH_FLOPS * vectors / dslash / 1e9, rate / 1e9]
        for method in METHODS:
            run = study.solve(first, method, precision)
            achieved = run.matvecs * flops * study.lattice.half_volume / run.seconds
            cells += [achieved / 1e9, achieved / rate]
        table.add(precision, *cells)


def memory(study: Study) -> None:
    """Print bytes per site of operators, and of solvers for one right-hand side, by precision."""
    A, whole = study.system(study.arguments.mass[0]), study.sources().nbytes / study.lattice.volume
    table = PrintedTable("solver", "precision", "links and clover", "fields")
    on_gpu = study.machine.backend == "cuda"
    packing = A.M.dslash.packing if on_gpu else None
    for method, precision in SOLVES:
        space = REGULAR[NAMES[method]].workspace
        blocks = space.on_device(precision) if on_gpu else space.on_host(precision)
        links = operator_bytes(study.lattice, precision, packing, A.M.links.csw is not None)
        table.add(method, precision, links / study.lattice.volume, blocks * whole / study.rhs)


def iteration_counts(study: Study) -> None:
    """Print a table of iterations for each method."""
    tolerance, limit, b = study.arguments.tolerance, study.arguments.limit, study.sources()
    for method in METHODS:
        print(f"\n### {method}")
        solvers = list(columns(method, tolerance, limit))
        table = PrintedTable("m", *(name for name, _ in solvers))
        for mass in study.arguments.mass:
            A = study.system(mass)
            table.add(mass, *(iterations(solver, A, b) for _, solver in solvers))


def errors(study: Study) -> None:
    """Print quantiles of the errors of the dslash."""
    error_table(study.machine, study.system(study.arguments.mass[0]).M)


def roofline(study: Study) -> None:
    """Print what bytes at the copy bandwidth, and the time around iterations, let mixed precision gain."""
    copy, mass = study.machine.copy_bandwidth(), study.arguments.mass[0]
    print(f"copy bandwidth {copy:.0f} GB/s")
    table = PrintedTable(
        *("solver", "precision", "bytes", "us at copy", "us", "of copy", "ms around"),
        *("gain by bytes", "allowed", "measured"),
    )
    pass_seconds = study.lattice.half_volume * study.rhs / copy / 1e9
    for method in METHODS:
        double: tuple[float, ...] = ()
        for precision in PRECISIONS:
            run, brief = study.solve(mass, method, precision), study.brief(mass, method, precision)
            moved, replaced = iteration_bytes(method, precision, study.rhs), replacement_bytes(study.rhs)
            least, least_of_brief, least_of_run = (
                pass_seconds * (steps * moved + replacements * replaced)
                for steps, replacements in ((1, 0), counts(brief), counts(run))
            )
            around = max(0.0, brief.seconds - least_of_brief)
            step = (run.seconds - brief.seconds) / (run.iterations - brief.iterations)
            costs = moved, least_of_run + around, run.seconds
            double = double or costs
            gains = (ours / theirs for ours, theirs in zip(double, costs, strict=True))
            table.add(method, precision, moved, 1e6 * least, 1e6 * step, least / step, 1e3 * around, *gains)


def counts(solution: Solution) -> tuple[int, int]:
    """Iterations and replacements."""
    return solution.iterations, solution.extras["replacements"]


def iteration_bytes(method: str, precision: str, rhs: int) -> float:
    """Bytes of an iteration per even site and right-hand side."""
    if method == "BiCGstab":
        spinors = 2 * PRODUCT
    else:
        spinors = PRODUCT + ADJOINT + (0 if precision == "double-half" else 2)  # p^H A p in a pass of its own
    spinors += UPDATES[method]
    y = SPINOR_BYTES["double-single" if precision == "double-half" else precision]
    return spinors * SPINOR_BYTES[precision] + CORRECTIONS * y + 2 * matrix_bytes(precision, rhs)


def replacement_bytes(rhs: int) -> float:
    """Bytes of a true residual per even site and right-hand side."""
    return REPLACEMENT * SPINOR_BYTES["double"] + matrix_bytes("double", rhs)


def matrix_bytes(precision: str, rhs: int) -> float:
    """Bytes of links and clover matrices in S or its adjoint per even site and right-hand side."""
    name = "double" if precision == "double" else "single"
    links = 2 * NAIVE_DIRECTIONS * Packing(block=rhs).wilson(name).value
    return (links + 2 * 2 * CLOVER_NUMBERS) * DTYPES[name].itemsize / 2 / rhs


TABLES: dict[str, Callable[[Study], None]] = {
    "time": times,
    "rates": rates,
    "memory": memory,
    "iterations": iteration_counts,
    "errors": errors,
    "roofline": roofline,
}


def plot(study: Study, to: Path) -> None:
    """Seconds of a solve, and what single and half gain over double, by mass, as an SVG file."""
    from matplotlib.figure import Figure

    figure = Figure((8, 3.5), layout="constrained")
    seconds, gains = figure.subplots(1, 2)
    for method, precision in SOLVES:
        runs = [(mass, study.solve(mass, method, precision)) for mass in study.arguments.mass]
        reached = [(mass, run) for mass, run in runs if run.status is SolveStatus.CONVERGED]
        masses, style = [mass for mass, _ in reached], {**STYLES[method], "color": COLOURS[precision]}
        label = f"{method}, {precision}"
        seconds.semilogy(masses, [run.seconds for _, run in reached], label=label, **style)
        if precision != "double":
            double = [study.solve(mass, method, "double").seconds for mass in masses]
            ratios = [a / run.seconds for a, (_, run) in zip(double, reached, strict=True)]
            gains.plot(masses, ratios, label=label, **style)
    for panel, name in ((seconds, "s"), (gains, "gain over double")):
        panel.set_xlabel("m")
        panel.set_ylabel(name)
        panel.set_ylim(bottom=0 if panel is gains else None)
        panel.legend(fontsize=8)
    figure.savefig(to)


if __name__ == "__main__":
    main()
