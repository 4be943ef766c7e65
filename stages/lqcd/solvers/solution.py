"""Results of solvers: the solution, its status, and statistics of many solves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import check_whole
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.solvers.space import Correction

Vector = NDArray[np.float64]
"""A number of each right-hand side, ``[N]``."""

Progress = Callable[[int, Vector], None]
"""Called after each iteration with its number and the estimated relative residuals ``[N]``."""


class SolveStatus(Enum):
    """End of a solve; the value says it in words, with the remedy."""

    CONVERGED = "every right-hand side reached the tolerance"
    ITERATION_LIMIT = (
        "the iteration limit came before the tolerance: "
        "raise max_iterations, loosen the tolerance, or use a larger mass"
    )
    STAGNATED = (
        "the true residual stopped falling above the tolerance, at the rounding of the outer precision or "
        "because the inner one does not resolve the lowest modes: loosen the tolerance, solve in double "
        "precision (complex128 right-hand sides, 'double' where 'double-single' stops), or use a larger mass"
    )
    BREAKDOWN = (
        "the iteration can take no further step: its directions are orthogonal to every residual: "
        "use a larger mass, another solver or another preconditioner"
    )
    DIVERGED = (
        "the residual grew without limit: the operator has eigenvalues with negative real part, as Wilson "
        "quarks beyond their critical kappa, or the method or its inner precision does not suit it: use a "
        "larger mass (a smaller kappa), precision 'double', or, unless they diverged, the normal equations "
        "(NormalEquations, `cgnr` in a file), which need a regular operator and nothing else"
    )
    INDEFINITE = (
        "a search direction has p^H A p <= 0, so the operator is not positive definite: conjugate gradients "
        "need a normal operator, staggered 4 m^2 - D^2 with m > 0 or A^H A of any other; check its sign"
    )
    NOT_FINITE = (
        "a residual is NaN or infinite: check the gauge links, right-hand sides and guesses for such values, "
        "and scale right-hand sides that overflow"
    )


@dataclass(frozen=True)
class Solution:
    """Solution of A x = b for N right-hand sides.

    x has the shape and dtype of b. residual: |b - A x| / |b| per right-hand side, float64 ``[N]``, recomputed
    in the precision of b (0 where b is zero; NaN, and x is zero, where b is not finite). history: the same as
    the iteration estimated it, ``[iterations + 1, N]``, with the value of a right-hand side that is left out
    repeated. matvecs: applications of A to one right-hand side, all columns of all blocks counted, in either
    precision. seconds: wall time.
    """

    x: Array
    status: SolveStatus
    iterations: int
    residual: NDArray[np.float64]
    history: NDArray[np.float64]
    matvecs: int
    seconds: float
    extras: dict[str, Any] = field(default_factory=dict)


class SolveOptions(TypedDict, total=False):
    """Options of a solve, beside the operator and the right-hand sides.

    x0: first guess, zero by default. on_failure: 'raise' NotConverged, or 'return' x with its status: of each
    right-hand side that of the least true residual, or zero where that is above |b|. deflate: an approximate
    y of A y = r for low modes, of the true residual r at the start and after each replacement
    (`stages.lqcd.solvers.deflation`).
    """

    x0: Array | None
    on_failure: str
    progress: Progress | None
    deflate: Correction | None


class Solver(Protocol):
    """A solver of linear systems."""

    def solve(self, A: Any, b: Array, **options: Unpack[SolveOptions]) -> Solution:
        """The solution of A x = b, as `stages.lqcd.solvers.krylov.KrylovSolver.solve`."""


class NotConverged(RuntimeError):  # noqa: N818 - it reads as the status it is
    """A solve that missed its tolerance; `solution` holds x, no worse than zero, and says why.

    first: number of its first right-hand side among those of a measurement.
    """

    def __init__(self, solution: Solution, tolerance: float, first: int = 0) -> None:
        outcome = _outcome(solution, tolerance, first)
        super().__init__(f"{outcome}: {solution.status.value}{_within_reach(solution)}")
        self.solution, self.tolerance = solution, tolerance


def _outcome(solution: Solution, tolerance: float, first: int) -> str:
    """Which right-hand sides were left out because they are not finite, and how many others missed."""
    finite = solution.residual[~np.isnan(solution.residual)]
    missed, of = int(np.sum(~(finite <= tolerance))), f"{finite.size} right-hand sides"
    words = ""
    if finite.size < solution.residual.size:
        columns = (first + np.flatnonzero(np.isnan(solution.residual))).tolist()
        named = "right-hand side {} is" if len(columns) == 1 else "right-hand sides {} are"
        words = f"{named.format(', '.join(map(str, columns)))} not finite (counted from 0)"
        if not finite.size:
            return words
        words, of = words + ", ", f"the other {finite.size}"
        if not missed:
            return f"{words}{of} reached the tolerance {tolerance:g}"
    return (
        f"{words}{missed} of {of} missed the tolerance {tolerance:g} "
        f"(largest residual {np.max(finite):.2g} after {solution.iterations} iterations)"
    )


def without(solution: Solution, columns: NDArray[np.intp]) -> Solution:
    """The solution of a block in which these columns were zero because they are not finite."""
    if not columns.size:
        return solution
    residual, status = solution.residual.copy(), solution.status
    residual[columns] = np.nan
    if status is SolveStatus.CONVERGED:
        status = SolveStatus.NOT_FINITE
    return replace(solution, residual=residual, status=status)


def _within_reach(solution: Solution) -> str:
    """The tolerance that a solve which stagnated can reach."""
    if solution.status is not SolveStatus.STAGNATED:
        return ""
    reached = 2 * np.nanmax(solution.residual)
    return f"; this precision reaches about {reached:.1g} here" if reached < 1 else ""


@dataclass
class SolveStatistics:
    """Statistics of a measurement's solves, block by block; residuals are relative and recomputed."""

    iterations: list[int] = field(default_factory=list)
    """Of each block."""
    residual: list[NDArray[np.float64]] = field(default_factory=list)
    """Of each block's right-hand sides, of the system solved."""
    full_residual: list[NDArray[np.float64]] = field(default_factory=list)
    """The same of M x = b on the whole lattice."""
    matvecs: int = 0
    seconds: float = 0.0
    history: list[float] = field(default_factory=list)
    """Of the first block, the worst right-hand side's residual at each iteration."""
    status: str = ""
    """Of the last block, in lower case."""

    def add(self, solution: Solution, full_residual: NDArray[np.float64]) -> None:
        """Enter a block."""
        self.iterations.append(int(solution.iterations))
        self.residual.append(solution.residual)
        self.full_residual.append(full_residual)
        self.matvecs += int(solution.matvecs)
        self.seconds += solution.seconds
        self.history = self.history or [float(worst) for worst in solution.history.max(axis=1)]
        self.status = solution.status.name.lower()

    @property
    def rhs(self) -> int:
        """Right-hand sides of all blocks."""
        return sum(len(block) for block in self.residual)

    @property
    def residual_max(self) -> float:
        """The largest of the systems solved, 0 before the first block."""
        return max((float(np.max(block)) for block in self.residual), default=0.0)

    @property
    def full_residual_max(self) -> float:
        """The largest of M x = b, 0 before the first block."""
        return max((float(np.max(block)) for block in self.full_residual), default=0.0)


def column_blocks(columns: int, width: int) -> list[range]:
    """The columns 0 ... columns - 1 in ranges of `width`, the last one perhaps shorter. Raises InputError."""
    check_whole("a block of right-hand sides", width, 1)
    return [range(start, min(start + width, columns)) for start in range(0, columns, width)]
