"""Solving M x = b of a Wilson-type operator through its even-odd system, block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import Solver
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.kernels.dispatch import Array, array_module, kernels_for, to_host
from stages.lqcd.solvers.column_blocks import blocks
from stages.lqcd.solvers.reliable import Progress as Iterations
from stages.lqcd.solvers.solution import Solution

Progress = Callable[[int, int], None]
"""Called with (blocks of right-hand sides done, blocks in all)."""


class Method(Protocol):
    """What solves M x = b for a block of right-hand sides."""

    def solve(self, M: WilsonOperator, b: Array, progress: Iterations | None = None) -> Solution:
        """x of M x = b, ``[parity, site, 12, N]``; its residual is that of the system solved.

        Raises NotConverged, and what `progress` raises, which is called after each iteration.
        """


@dataclass(frozen=True)
class EvenOdd:
    """The Schur complement of M, solved by `solver`, and the other parity reconstructed.

    kind: of the preconditioning, 'symmetric' or 'asymmetric' (`stages.lqcd.dirac.wilson_schur`).
    """

    solver: Solver
    kind: str = "symmetric"

    def solve(self, M: WilsonOperator, b: Array, progress: Iterations | None = None) -> Solution:
        S = WilsonSchur(M, self.kind)
        found = self.solver.solve(S, S.prepare(b), progress=progress)
        return Solution(
            S.reconstruct(found.x, b),
            found.status,
            found.iterations,
            found.residual,
            found.history,
            found.matvecs,
            found.seconds,
            found.extras,
        )


@dataclass
class Propagation:
    """What the blocks of a propagator took; residuals are relative and recomputed, of each column."""

    iterations: list[int] = field(default_factory=list)
    """Of each block."""
    residual: list[NDArray[np.float64]] = field(default_factory=list)
    """Of the even-odd system."""
    full_residual: list[NDArray[np.float64]] = field(default_factory=list)
    """Of M x = b."""
    matvecs: int = 0
    seconds: float = 0.0
    history: list[float] = field(default_factory=list)
    """Of the first block, the worst column's residual at each iteration."""
    status: str = ""

    def solve(self, M: WilsonOperator, b: Array, method: Method) -> Array:
        """x of M x = b for a block, which is entered. Raises what the method raises."""
        solution = method.solve(M, b)
        self.iterations.append(int(solution.iterations))
        self.residual.append(solution.residual)
        self.full_residual.append(full_residual(M, solution.x, b))
        self.matvecs += int(solution.matvecs)
        self.seconds += solution.seconds
        self.history = self.history or [float(worst) for worst in solution.history.max(axis=1)]
        self.status = solution.status.name.lower()
        return solution.x


def propagate(
    M: WilsonOperator, sources: Array, method: Method, block: int, progress: Progress = lambda *_: None
) -> tuple[Array, Propagation]:
    """x of M x = b for all columns of ``[parity, site, 12, N]``, `block` of them at a time.

    Raises what the method raises where a column misses its tolerance, and InputError.
    """
    xp, made = array_module(sources), Propagation()
    x = xp.empty_like(sources)
    parts = blocks(sources.shape[-1], block)
    for number, columns in enumerate(parts, start=1):
        some = slice(columns.start, columns.stop)
        x[..., some] = made.solve(M, xp.ascontiguousarray(sources[..., some]), method)
        progress(number, len(parts))
    return x, made


def full_residual(M: WilsonOperator, x: Array, b: Array) -> NDArray[np.float64]:
    """|b - M x| / |b| of each column, float64 ``[N]`` on the host; 0 where b is zero and x too."""
    kernels = kernels_for(b)
    r = M.apply(x)
    r -= b
    missed, source = (
        np.sqrt(to_host(kernels.block_blas.norms2(v.reshape(-1, *v.shape[2:])))) for v in (r, b)
    )
    return missed / np.where(source > 0, source, 1)
