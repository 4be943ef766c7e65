"""The truncated solver method against solves to one tolerance, in every precision, as a Markdown table.

    python tests/benchmarks/truncated_solver.py [--backend cuda] [--lattice 8 8 8 16] [--mass 0.02]
    [--vectors 8] [--loose 5e-6] [--tight 2e-9] [--most 256]

Loops J_i(t) of one mass on a quenched configuration, HISQ links, Z2 noise with displacement dilution, batched
CG in blocks of `--rhs`. All noise vectors are solved to both tolerances. The first row of a precision solves
to the tight one alone, the second to the loose one, with the difference of both on a few vectors
(`stages.lqcd.estimators.truncated`). Columns: iterations, medians of blocks, and seconds per noise vector,
loose and tight; noise of J per vector, and that of tight - loose in its units; vectors, cheapest first, and
seconds that reach the error of `--most` vectors in double to the tight tolerance, and the gain over those.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from script import SMALL, PrintedTable, arguments_of, quenched
from stages.lqcd.analysis.allocation import Allocation, Limits, VarianceModel, least_cost
from stages.lqcd.analysis.stochastic_error import noise_moments
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.estimators.stochastic import stochastic_loops
from stages.lqcd.estimators.trace import CurrentLinks, LoopTrace
from stages.lqcd.estimators.truncated import Piece, truncated_pieces
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.noise.dilution import Dilution
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.named import PRECISIONS
from workflows.benchmarks.machine import Machine

SEED, LABEL, LIMIT = 1729, "truncated solver", 100_000
DILUTION = Dilution(displacement=2)
FEWEST, MOST = 2, 10**6
"""Noise vectors of a piece."""
MEASURED = ("tolerance", "iterations", "seconds")
COLUMNS = (
    *("precision", "to", "iterations", "s per vector", "noise of J", "of tight - loose"),
    *("vectors", "s for the same error", "gain"),
)


@dataclass(frozen=True)
class Measured:
    """Loops ``[noise, direction, time]``, seconds per noise vector, median iterations of a block."""

    tolerance: float
    loops: NDArray[np.float64]
    seconds: float
    iterations: float


@dataclass(frozen=True)
class Study:
    """One configuration and its noise: vectors ``[site, 3, noise]`` on even and on odd sites."""

    machine: Machine
    dslash: StaggeredDslash
    noise: tuple[Array, Array]
    arguments: Namespace

    def measured(self, precision: str, tolerance: float) -> Measured:
        """Loops of all noise vectors, after those of the first block, which compile."""
        first = ceil(self.arguments.rhs / len(DILUTION.partition(self.dslash.lattice, EVEN).subsets))
        self._loops(precision, tolerance, first)
        return self._loops(precision, tolerance, self.arguments.vectors)

    def _loops(self, precision: str, tolerance: float, vectors: int) -> Measured:
        """Loops of the first noise vectors."""
        asked, loops = self.arguments, list[NDArray[np.float64]]()
        solver = BatchedCG(tolerance, LIMIT, precision)
        trace = LoopTrace(self.dslash, CurrentLinks(self.dslash.links), asked.mass, solver)
        noise = [field[..., :vectors].copy() for field in self.noise]

        def work() -> None:
            loops.append(stochastic_loops(trace, noise, DILUTION, asked.rhs).current)

        seconds = self.machine.wall_seconds(work)
        return Measured(tolerance, loops[0], seconds / vectors, median(trace.statistics.iterations))


def main() -> None:
    """Print the table."""
    problem = {"beta": 6.0, "sweeps": 20, "mass": 0.02, "vectors": 8, "rhs": 16, "most": 256}
    options = {**problem, "loose": 5e-6, "tight": 2e-9, "precision": list(PRECISIONS)}
    arguments = arguments_of(__doc__, lattice=SMALL, machine="cpu", options=options)
    machine, lattice = arguments.machine, arguments.lattice
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    thin = quenched(lattice, LABEL, **chain, xp=machine.xp)
    links = hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    dslash = StaggeredDslash(links, packing=Packing(block=arguments.rhs))
    numbers = range(arguments.vectors)
    even, odd = (noise_vectors(lattice, p, LABEL, SEED, numbers, xp=machine.xp) for p in (EVEN, ODD))
    study = Study(machine, dslash, (even, odd), arguments)
    print(f"{machine.name}; {lattice}, beta = {arguments.beta:g}, {arguments.sweeps} sweeps, ", end="")
    print(f"m = {arguments.mass:g}; {arguments.vectors} noise vectors, blocks of {arguments.rhs}.")
    table, error, whole = PrintedTable(*COLUMNS), 0.0, 0.0
    for precision in arguments.precision:
        loose, tight = (study.measured(precision, to) for to in (arguments.loose, arguments.tight))
        for used in ((tight,), (loose, tight)):
            covariance = _covariance(used)
            noise = np.sqrt(covariance.diagonal())
            error = error or float(noise[0]) / sqrt(arguments.most)
            best = _cheapest(used, covariance, error)
            whole = whole or best.cost
            difference = float(noise[1] / noise[0]) if len(used) == 2 else None
            names = (_joined([getattr(each, name) for each in used]) for name in MEASURED)
            cells = float(noise[0]), difference, _joined(best.counts), best.cost, whole / best.cost
            table.add(precision, *names, *cells)


def _covariance(used: Sequence[Measured]) -> NDArray[np.float64]:
    """Of the noise of the pieces of J_i(t), mean over spatial i and t, ``[piece, piece]``."""
    pieces = [Piece(tuple(range(len(each.loops))), each.loops) for each in used]
    return noise_moments(truncated_pieces(pieces[0], pieces[1] if len(pieces) == 2 else None)).loops


def _cheapest(used: Sequence[Measured], covariance: NDArray[np.float64], error: float) -> Allocation:
    """Vectors of each piece for an error of J, and what they take."""
    model = VarianceModel(covariance, np.zeros((len(used),) * 4))
    limits = Limits((FEWEST,) * len(used), (MOST,) * len(used), 1)
    return least_cost(model, [each.seconds for each in used], error, limits)


def _joined(numbers: Sequence[float]) -> str:
    return " + ".join(f"{number:.3g}" for number in numbers)


if __name__ == "__main__":
    main()
