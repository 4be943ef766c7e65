"""Even-odd preconditioning: M x = b solved through a system on the sites of one parity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.fields import assign, contiguous, field_like
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.solvers.solution import (
    NotConverged,
    Solution,
    SolveOptions,
    Solver,
    SolveStatistics,
    column_blocks,
)

Progress = Callable[[int, int], None]
"""Called with (blocks of right-hand sides done, blocks in all)."""


class EvenOddSystem(Protocol):
    """A system on one parity that stands for M x = b on the whole lattice."""

    @property
    def operator(self) -> LinearOperator:
        """The operator of the system."""

    def prepare(self, b: Array) -> tuple[Array, Any]:
        """The right-hand side of the system for M x = b, and what `reconstruct` needs of b."""

    def reconstruct(self, x: Array, source: Any) -> Array:
        """The solution of M x = b from that of the system; `source`, from `prepare`, may change."""


@dataclass(frozen=True)
class EvenOdd:
    """A solver of M x = b: `system` of M solved by `solver`, and the other parity reconstructed.

    system: makes it of M, as `stages.lqcd.dirac.wilson_schur.WilsonSchur`, or
    `stages.lqcd.dirac.full_lattice.StaggeredSchur`.
    """

    solver: Solver
    system: Callable[[Any], EvenOddSystem]

    def solve(self, M: LinearOperator, b: Array, **options: Unpack[SolveOptions]) -> Solution:
        """Solution x of M x = b, of the shape of b; tolerance and `residual` are those of the system.

        x is zero where the residual is NaN: a right-hand side, or its guess, is not finite.

        options: those of the solver. Raises what the solver raises, and InputError for a wrong field.
        """
        system = self.system(M)
        rhs, source = system.prepare(b)
        solution = self.solver.solve(system.operator, rhs, **options)
        x = system.reconstruct(solution.x, source)
        if (refused := np.flatnonzero(np.isnan(solution.residual))).size:
            lane_blas.lane_clear(x, refused)
        return replace(solution, x=x)


def even_odd_solve(system: EvenOddSystem, b: Array, solve: Callable[[Array], Array]) -> Array:
    """About M^-1 b by `solve`, which is about the inverse of the system's operator."""
    rhs, source = system.prepare(b)
    return system.reconstruct(solve(rhs), source)


class ByParity(LinearOperator, Protocol):
    """An operator on the whole lattice, ``[parity, site, component, N]``."""

    def apply_to(self, parity: int, x: Array, out: Array) -> Array:
        """The part of the product on the sites of a parity; returns `out`."""


def full_residual(M: ByParity, x: Array, b: Array) -> NDArray[np.float64]:
    """|b - M x| / |b| of each right-hand side, float64 ``[N]`` on the host; 0 where b and x vanish."""
    r, missed2 = field_like(x[EVEN]), np.zeros(x.shape[-1])
    for parity in (EVEN, ODD):
        M.apply_to(parity, x, r)
        block_blas.difference(r, b[parity], r)
        missed2 += as_numpy(block_blas.norms2(r))
    return _relative(missed2, b)


def relative_norms(r: Array, b: Array) -> NDArray[np.float64]:
    """|r| / |b| of each right-hand side of fields ``[*, N]``, float64 ``[N]``; |r| where b vanishes."""
    return _relative(as_numpy(block_blas.norms2(r.reshape(-1, *r.shape[-2:]))), b)


def _relative(missed2: NDArray[np.float64], b: Array) -> NDArray[np.float64]:
    source = np.sqrt(as_numpy(block_blas.norms2(b.reshape(-1, *b.shape[-2:]))))
    with np.errstate(invalid="ignore"):  # of infinite right-hand sides
        return np.sqrt(missed2) / np.where(source > 0, source, 1)


def propagate(
    M: ByParity, sources: Array, method: Solver, block: int, progress: Progress = lambda *_: None
) -> tuple[Array, SolveStatistics]:
    """Solution of M x = b for all columns of `sources` ``[*, N]``, `block` of them at a time.

    Raises what the method raises where a column misses its tolerance, and InputError.
    """
    statistics = SolveStatistics()
    parts = column_blocks(sources.shape[-1], block)
    if len(parts) == 1:
        x = solved(M, contiguous(sources), method, statistics)
        progress(1, 1)
        return x, statistics
    x = field_like(sources)
    for number, part in enumerate(parts, start=1):
        columns = slice(part.start, part.stop)
        assign(x[..., columns], solved(M, contiguous(sources[..., columns]), method, statistics, part.start))
        progress(number, len(parts))
    return x, statistics


def solved(M: ByParity, b: Array, method: Solver, statistics: SolveStatistics, first: int = 0) -> Array:
    """Solution of M x = b for one block, entered into `statistics`. Raises what the method raises.

    first: number of its first right-hand side among those of the measurement.
    """
    try:
        solution = method.solve(M, b)
    except NotConverged as failure:
        raise NotConverged(failure.solution, failure.tolerance, first) from None
    statistics.add(solution, full_residual(M, solution.x, b))
    return solution.x
