"""Iterations against mass for solvers in double, double-single and double-half precision, as Markdown tables.

    python -m workflows.benchmarks.mixed_precision [--lattice 8 8 8 16] [--csw 1] [--mass m ...] [--rhs 4]

As the tables of arXiv:0911.3191: BiCGstab and conjugate gradients on the normal equations for the
even-odd Wilson-clover operator, with reliable updates and with defect correction, for several delta (the fall
of a residual that asks for a true one, and the tolerance of a correction).

"Half" emulates 16-bit storage: the fields that the single-precision operator reads and writes are rounded to
16-bit numbers with a scale for each site and right-hand side (`stages.lqcd.kernels.half_field`); links and
the solver's own fields stay in single precision. Random sources; the count is that of the slowest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.lqcd.dirac.operator import LinearOperator, Solver
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.half_field import decoded, encoded, scale_for
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.defect_correction import DefectCorrection
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.solvers.solution import SolveStatus
from workflows.benchmarks.script import SMALL, PrintedTable, arguments_of, quenched, wilson

SEED, SWEEPS = 811, 40
DELTAS = (0.1, 0.01, 0.001)


@dataclass(frozen=True)
class HalfInside:
    """A whose complex64 form reads and writes 16-bit fields."""

    operator: LinearOperator

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operator, name)

    @property
    def adjoint(self) -> HalfInside:
        return HalfInside(self.operator.adjoint)

    def astype(self, dtype: Any) -> HalfInside:
        return HalfInside(self.operator.astype(dtype))

    def apply(self, x: Array, out: Array | None = None) -> Array:
        if self.operator.dtype != np.complex64:
            return self.operator.apply(x, out)
        result = rounded(self.operator.apply(rounded(x)))
        if out is None:
            return result
        out[...] = result
        return out


def rounded(x: Array) -> Array:
    """Fields ``[site, component, N]`` as they come back from 16-bit storage."""
    parts = np.stack([x.real, x.imag])
    scale = scale_for(abs(parts).max(axis=(0, 2)))[:, None, :]
    re, im = decoded(encoded(parts, scale), scale)
    return (re + 1j * im).astype(np.complex64)


def solvers(method: str, tolerance: float, limit: int) -> Iterator[tuple[str, bool, Solver]]:
    """Name, whether half precision is inside, and the solver, of each column of a table."""

    def krylov(tolerance: float, **options: Any) -> Solver:
        if method == "BiCGstab":
            return BiCGstab(tolerance, limit, **options)
        return NormalEquations(BatchedCG(tolerance, limit, **options))

    yield "double", False, krylov(tolerance)
    for half in (False, True):
        precision = "half" if half else "single"
        for delta in DELTAS:
            yield f"{precision}, reliable {delta:g}", half, krylov(tolerance, inner="single", delta=delta)
        for delta in DELTAS:
            yield f"{precision}, defect {delta:g}", half, DefectCorrection(krylov(delta), tolerance, limit)


def main() -> None:
    """Print one table for each method."""
    field = {"beta": 5.7, "csw": 1.0, "mass": [-0.3, -0.4, -0.5, -0.55]}
    options = {**field, "tolerance": 1e-8, "limit": 5000, "rhs": 4}
    arguments = arguments_of(__doc__, lattice=SMALL, options=options)
    lattice, tolerance = arguments.lattice, arguments.tolerance
    thin = quenched(lattice, "mixed precision", beta=arguments.beta, seed=SEED, sweeps=SWEEPS)
    print(f"{lattice}, csw = {arguments.csw:g}, to {tolerance:g}, {arguments.rhs} sources.")
    for method in ("BiCGstab", "CG on the normal equations"):
        print(f"\n## {method}")
        columns = list(solvers(method, tolerance, arguments.limit))
        table = PrintedTable("m", *(name for name, _, _ in columns))
        for mass in arguments.mass:
            A = WilsonSchur(wilson(thin, lattice, mass, arguments.csw))
            table.add(mass, *(iterations(solver, A, half, arguments.rhs) for _, half, solver in columns))


def iterations(solver: Solver, A: LinearOperator, half: bool, rhs: int) -> int | str:
    """Iterations of one solve, or how it failed."""
    rng = np.random.default_rng(SEED)
    b = rng.normal(size=(*A.shape, rhs)) + 1j * rng.normal(size=(*A.shape, rhs))
    solution = solver.solve(HalfInside(A) if half else A, b, on_failure="return")
    return solution.iterations if solution.status is SolveStatus.CONVERGED else solution.status.name.lower()


if __name__ == "__main__":
    main()
