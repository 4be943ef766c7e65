"""Block Lanczos on one system or on many: settings, their common run, and what ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.batched_subspace import BatchedSubspace
from stages.lqcd.eigen.chebyshev import ChebyshevFilter, RepeatedFilter
from stages.lqcd.eigen.eigenpairs import Eigenpairs, EigenStatus
from stages.lqcd.eigen.subspace import Subspace
from stages.lqcd.kernels.dispatch import Array

MOST_BLOCK = 32

SAFETY = 0.5
"""Ritz vectors are good enough at this part of the tolerance: the last rotation mixes close ones."""

TIE = 10
"""Eigenvalues that differ by less than this times what a residual may be are taken as one."""

ROUNDING = 50
"""Rounding units of the largest eigenvalue that residuals stay above."""

PATIENCE = 20
NEAR_ROUNDING = 1e4
"""A run ends if residuals below so many rounding units of the largest eigenvalue rest for so many cycles."""

STALLED_CYCLES = 60
"""A run ends if at any height no residual halves its least and no pair is done for so many cycles."""

GAP = 10
"""Times the mean distance of the eigenvalues below it that a gap measures behind a cluster."""

CHANCE = 1e-3
"""Probability that a random block overlaps less with the missing vector than is supposed."""

SAME = 1e-6
"""Relative difference of values of p that are taken as one."""

History = list[tuple[int, int, float]]
"""(restart, pairs done, largest residual of the wanted pairs), one entry a restart cycle."""

Basis = TypeVar("Basis", Subspace, BatchedSubspace)

Progress = Callable[[int, int, int, float], None]
"""progress(restarts, converged, wanted, largest residual of the wanted pairs), after each restart cycle."""


@dataclass(frozen=True)
class Lanczos:
    """Frozen configuration of a run for the lowest `vectors` eigenpairs of a system.

    block: 1 to 32 columns. tolerance: |A v - lambda v| is at most this times the largest eigenvalue. seed: of
    the random vectors.
    """

    vectors: int
    block: int = 8
    tolerance: float = 1e-10
    max_restarts: int = field(default=200, kw_only=True)
    seed: int = field(default=20260, kw_only=True)

    def __post_init__(self) -> None:
        for name, value, least in (
            ("the number of eigenvectors", self.vectors, 1),
            ("the block of Lanczos vectors", self.block, 1),
            ("max_restarts", self.max_restarts, 1),
            ("seed of Lanczos vectors", self.seed, 0),
        ):
            check_whole(name, value, least)
        if self.block > MOST_BLOCK:
            raise InputError(f"the block of Lanczos vectors must be 1 to {MOST_BLOCK}, got {self.block}")
        if not 0 < self.tolerance < 1:
            raise InputError(f"tolerance must lie between 0 and 1, got {self.tolerance}")

    def check_operator(self, A: LinearOperator) -> None:
        """Raises InputError for an operator that is not Hermitian or whose rounding hides the tolerance."""
        if not A.hermitian:
            raise InputError(f"Lanczos needs a Hermitian operator, which {type(A).__name__} is not")
        check_reachable(self.tolerance, A.dtype)


def check_reachable(tolerance: float, dtype: DTypeLike) -> None:
    """Raise InputError for a tolerance that vectors of this complex dtype cannot meet.

    In units of the largest eigenvalue.
    """
    least = ROUNDING * float(np.finfo(dtype).eps)
    if tolerance < least:
        single = np.dtype(dtype) == np.complex64
        raise InputError(
            f"residuals in {'single' if single else 'double'} precision stay above about {least:.1g} of the "
            f"largest eigenvalue, got a tolerance of {tolerance:g}: take a larger one"
            + (", or double precision" if single else "")
        )


class Run(Generic[Basis]):
    """A run on one system or on many; cycles follow each other until there is a status.

    space: V, H and the next block X. filter: p. values, residuals: of the wanted Ritz vectors, ``[k]`` or
    ``[S, k]``. scale: the largest eigenvalue in modulus. raised: whether a window began higher than before.
    matvecs: applications of A to one right-hand side.
    """

    space: Basis
    filter: ChebyshevFilter
    scale: float

    def __init__(self, method: Lanczos, A: LinearOperator, shape: tuple[int, ...]) -> None:
        self.method, self.A = method, A
        self.started = time.perf_counter()
        self.repeated = RepeatedFilter(A)
        self.values, self.residuals = np.full(shape, np.nan), np.full(shape, np.inf)
        self.restarts = self.matvecs = 0
        self.raised = False
        self.history: History = []

    @property
    def seconds(self) -> float:
        """Wall time so far."""
        return time.perf_counter() - self.started

    @property
    def limit(self) -> float:
        """The largest residual of a converged pair."""
        return self.method.tolerance * self.scale

    @property
    def converged(self) -> int:
        """Wanted pairs that are converged."""
        raise NotImplementedError

    def status(self) -> EigenStatus | None:
        """The end of the run, or None before another cycle."""
        raise NotImplementedError

    def cycle(self) -> None:
        """Fill V, restart with leading Ritz vectors, and measure the wanted ones."""
        raise NotImplementedError

    def save(self) -> None:
        """Keep what a run needs to go on, after a cycle."""

    def extras(self) -> dict[str, Any]:
        """Further numbers of the result."""
        return {}

    def iterate(self, progress: Progress | None) -> EigenStatus:
        """All cycles."""
        while (status := self.status()) is None:
            self.cycle()
            report = self.restarts, self.converged, float(self.residuals.max())
            self.history.append(report)
            if progress is not None:
                progress(*report[:2], self.values.size, report[2])
            self.save()
        return status

    def apply(self, x: Array, spare: Array) -> tuple[Array, Array]:
        """p(A) x and the other array; both are overwritten."""
        self.matvecs += x.shape[-1] * self.filter.products
        return self.repeated.apply(self.filter, x, spare)

    def measure(self, columns: slice) -> None:
        """Rayleigh quotients and true residuals of these columns of V."""
        self.values[..., columns], self.residuals[..., columns] = self.space.measure(self.A, columns)
        self.matvecs += self.whole_blocks(columns.stop - columns.start)

    def whole_blocks(self, columns: int) -> int:
        """Columns, rounded up to blocks."""
        return -(-columns // self.space.block) * self.space.block

    def distinct(self) -> bool:
        """True if no system has as many equal eigenvalues as a block has columns."""
        values = np.sort(self.values).reshape(-1, self.method.vectors)
        return all(largest_cluster(each, TIE * self.limit) < self.space.block for each in values)

    def eigenpairs(self, status: EigenStatus) -> Eigenpairs:
        """Eigenvectors of V^H A V among the wanted columns, measured once more."""
        k, extras = self.method.vectors, self.extras()
        if status is EigenStatus.STALLED:
            worst = int(self.residuals.reshape(-1, k).max(axis=1).argmax())
            ritz = self.space.ritz()[0].reshape(-1, self.space.used)[worst]
            extras["ask_for"] = vectors_to_ask_for(self.filter.eigenvalues(np.maximum(ritz, 1)), k)
        self.repeated.clear()
        self.space.release()
        if self.filter.degree:
            self.space.diagonalise(self.A, k)
            self.matvecs += self.whole_blocks(k)
        self.measure(slice(0, k))
        reached = self.residuals.max() <= self.limit
        if status is EigenStatus.CONVERGED and not reached:
            status = EigenStatus.RESIDUAL
        if status is EigenStatus.PRECISION and reached and self.distinct() and not self.raised:
            status = EigenStatus.CONVERGED  # within the margin that locked pairs keep
        order, vectors = self.space.lowest(self.values)
        return Eigenpairs(
            self.values[..., order],
            vectors,
            self.residuals[..., order],
            status,
            self.restarts,
            self.matvecs,
            self.seconds,
            (self.filter.low, self.filter.high),
            self.filter.degree,
            self.history,
            extras,
        )


def resting(history: History, dtype: DTypeLike, scale: float) -> EigenStatus | None:
    """PRECISION or STALLED where residuals rest: no pair was done, and the least of them has not halved.

    Near rounding in `PATIENCE` cycles, above it in `STALLED_CYCLES`. dtype: of the vectors. scale: the
    largest eigenvalue.
    """
    if len(history) > PATIENCE:
        (_, before, first), (_, now, last) = history[-PATIENCE - 1], history[-1]
        near = NEAR_ROUNDING * float(np.finfo(dtype).eps) * scale
        if before == now and first / 2 <= last <= near:
            return EigenStatus.PRECISION
    if len(history) > STALLED_CYCLES:
        earlier, recent = history[:-STALLED_CYCLES], history[-STALLED_CYCLES:]
        least = min(residual for _, _, residual in earlier)
        if earlier[-1][1] == recent[-1][1] and min(residual for _, _, residual in recent) > least / 2:
            return EigenStatus.STALLED
    return None


def vectors_to_ask_for(eigenvalues: NDArray[np.float64], wanted: int) -> int:
    """Vectors below the clearest gap beyond the wanted ones, twice as many as wanted where there is none.

    eigenvalues: approximate ones, ascending, more than are wanted.
    """
    count = np.arange(wanted + 1, len(eigenvalues))
    if count.size == 0:
        return 2 * wanted
    rounding = float(np.finfo(float).eps) * np.abs(eigenvalues).max()
    spacing = np.maximum(eigenvalues[count - 1] - eigenvalues[0], rounding) / (count - 1)
    gaps = (eigenvalues[count] - eigenvalues[count - 1]) / spacing
    return int(count[gaps.argmax()]) if gaps.max() >= GAP else 2 * wanted


def largest_cluster(values: NDArray[np.float64], width: float) -> int:
    """Most of the ascending values within `width` of each other."""
    ends = np.searchsorted(values, values + width, side="right")
    return int((ends - np.arange(len(values))).max())


def missing(p: NDArray[np.float64], largest: float, steps: int, block: int, dimension: int) -> bool | None:
    """True if an eigenvector with p above the least of those found is missing, False if not, None: too early.

    A Krylov space of b random vectors meets at most b dimensions of an eigenspace. Where more eigenvalues
    than that coincide, further copies enter by rounding alone. So, after all wanted pairs are found, a random
    block orthogonal to everything found is iterated with the same filter p. If an eigenvector with p = g were
    left, the largest Ritz value of that Krylov space would after j steps be within

        (g + 1) tan^2 / T_{j-1}(gamma)^2,   gamma = 1 + 2 (g - theta) / (theta + 1),

    tan^2 = dimension / overlap, of g (Y. Saad, Numerical methods for large eigenvalue problems, 6.6), where
    theta bounds the rest of the spectrum above the pairs that V keeps. It is excluded when the Ritz value
    theta found stays further away than that. Copies that lie in what V keeps do not show in that block; the
    largest Ritz value of both together does (`stages.lqcd.eigen.block_lanczos`).

    p: at the eigenvalues found, descending. largest: Ritz value on the fresh Krylov space of so many steps.
    """
    if largest > p[-1] * (1 + SAME):
        return True
    above = p[p > largest * (1 + SAME)]
    if above.size == 0:
        return False if largest >= p[0] * (1 - SAME) else None
    g, theta = above.min(), max(largest, -0.999)
    gamma = 1 + 2 * (g - theta) / (theta + 1)
    overlap = CHANCE if block == 1 else block * CHANCE ** (1 / block) / 2
    log_growth = 2 * (steps - 1) * np.arccosh(gamma) - 2 * np.log(2)
    return False if log_growth > np.log((g + 1) * dimension / overlap / (g - theta)) else None
