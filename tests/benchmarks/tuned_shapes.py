"""Gains of measured launch shapes over those of the model: whole iterations, and kernel by kernel.

    python tests/benchmarks/tuned_shapes.py [--lattice 32 32 32 48] [--rhs 1 16] [--quarks hisq wilson]
    [--iterations 60]

Solves of a number of iterations on a quenched configuration are made with the first shape of every kernel, as
the model has it, are watched by the tuner, which measures all shapes of what they call, and are made again
with the best of them; of `--repeats` the shortest counts. No table on disk is read or written. us: of an
iteration, and of a call. Listed are kernels that no case before had, if they gain `--least` percent.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

from script import LARGE, PrintedTable, arguments_of, quenched, wilson
from stages.lqcd.dirac.staggered import NormalOperator, Packing, StaggeredDslash
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.named import PRECISIONS
from stages.lqcd.solvers.solution import Solution
from workflows.benchmarks.machine import Device, random_field
from workflows.tuning import COLUMNS, by_gain, require_device, row

SEED, UNREACHED = 97, 1e-15
HISQ_MASS, WILSON_MASS = 0.02, -0.4

Solve = Callable[[], Solution]


def main() -> None:
    """Print the times and a table of kernels of each case, for the device at hand."""
    options = {"beta": 6.0, "sweeps": 10, "rhs": [1, 16], "quarks": list(CASES), "iterations": 60}
    options |= {"precision": list(PRECISIONS), "repeats": 3, "least": 2.0}
    arguments = arguments_of(__doc__, lattice=LARGE, options=options)
    require_device()
    device = Device()
    from stages.lqcd.kernels.cuda.tuning.choice import ShapeProblem, listening
    from stages.lqcd.kernels.cuda.tuning.tuner import Tuner

    def by_model(problem: ShapeProblem) -> Any:
        return problem.options.launch(problem.options.shapes[0])

    print(f"{device.name}; {arguments.lattice}, {arguments.iterations} iterations")
    tuner = Tuner()
    for name, solve in cases(arguments, device):
        with listening(by_model):
            model = microseconds(solve, arguments.repeats)
        before = len(tuner.findings)
        with tuner.at_work():
            solve()
        with listening(tuner.shape_of):
            tuned = microseconds(solve, arguments.repeats)
        found = by_gain(tuner.findings[before:])
        gain = f"gain {100 * (1 - tuned / model):.1f} %"
        print(f"\n{name}: {model:.1f} us by the model, {tuned:.1f} tuned, {gain}; ", end="")
        print(f"{len(found)} kernels, {sum(each.shape != each.model for each in found)} in another shape")
        table = PrintedTable(*COLUMNS)
        for finding in found:
            if finding.seconds < (1 - arguments.least / 100) * finding.model_seconds:
                table.add(*row(finding))
    print(f"\nnot measured: {', '.join(dict.fromkeys(tuner.unmeasured)) or 'none'}")


def microseconds(solve: Solve, repeats: int) -> float:
    """Time of an iteration, in the shortest of some solves after one that compiles."""
    solve()
    return min(1e6 * run.seconds / run.iterations for run in (solve() for _ in range(repeats)))


def cases(arguments: Namespace, device: Device) -> Iterator[tuple[str, Solve]]:
    """Solver, precision and right-hand sides, and the solve, of each case.

    Block CGrQ has no half, and is no other method for one right-hand side.
    """
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    thin = quenched(arguments.lattice, "shapes", **chain, xp=device.xp)
    for quarks, n in product(arguments.quarks, arguments.rhs):
        make, solvers = CASES[quarks]
        A = make(thin, arguments.lattice, n)
        b = random_field(device, (*A.shape, n), complex, SEED)
        for (name, solver), precision in product(solvers.items(), arguments.precision):
            if name == "block_cgrq" and (n == 1 or precision == "double-half"):
                continue
            method = solver(UNREACHED, arguments.iterations, PRECISIONS[precision])
            yield f"{name}, {precision}, N = {n}", partial(method.solve, A, b, on_failure="return")


def hisq(thin: Array, lattice: Lattice, block: int) -> NormalOperator:
    """The normal operator of HISQ quarks on the even sites."""
    links = hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    return NormalOperator(StaggeredDslash(links, packing=Packing(block=block)), HISQ_MASS)


def wilson_clover(thin: Array, lattice: Lattice, block: int) -> WilsonSchur:
    """The Schur complement of Wilson quarks with a clover term."""
    return WilsonSchur(wilson(thin, lattice, WILSON_MASS, 1.0, block))


CASES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "hisq": (hisq, {"batched_cg": BatchedCG, "block_cgrq": BlockCGrQ}),
    "wilson": (wilson_clover, {"bicgstab": BiCGstab}),
}
"""By quarks: the operator for so many right-hand sides, and solvers."""


if __name__ == "__main__":
    main()
