"""Block Lanczos on many systems at once: the lowest eigenpairs of each diagonal block of an operator.

The operator acts on fields whose equal parts, one after the other, do not mix: the time slices of a lattice.
All parts go through one filter, one application and one batched product together (batch x block), so that
small systems fill a large device. Thick restarts and filters are those of `stages.lqcd.eigen.block_lanczos`:

    1  X random, filtered a few times, orthonormal; V empty
    2  until V has no room: append X to V, W = p(A) X,
       H gets its column V^H W, X = W - V V^H W, orthonormal
    3  Ritz vectors of H; V becomes the leading ones
    4  values and true residuals of the wanted ones;
       2 until all of them are below the tolerance in all systems
    5  where as many eigenvalues of a system coincide as a block has columns,
       or the window was raised, whose filter damps less now:
       a fresh random X orthogonal to V; 2 until it changes nothing

The Krylov space of F^m X with m fewer blocks, F = p(A), holds the lowest eigenvectors about as well as that
of X: it takes as many applications, and fewer columns of V.

After the first cycle the filter is chosen again from what was found, if the first choice was a bad one; and
whenever eigenvalues found are not all below its window, where it does not tell the lowest from others.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.batched_subspace import BatchedSubspace, Matrices
from stages.lqcd.eigen.eigenpairs import Eigenpairs, EigenpairsNotConverged, EigenStatus
from stages.lqcd.eigen.lanczos import PATIENCE, SAFETY, TIE, History, Lanczos, Progress, Run, resting
from stages.lqcd.eigen.window import (
    ABOVE,
    GROWTH_OF_MANY,
    WindowChoice,
    estimate_spectrum,
    kept_columns,
    subspace_size,
)
from stages.lqcd.kernels.host_lapack import in_one_blas_thread
from stages.lqcd.lattice.threads import kernels_in_one_thread

BAD = 1.6
"""A filter is chosen again if its window begins this many times as far from the lowest value as it should."""

LATE = 0.5
"""Part of the basis in use from which on a cycle looks whether it is done: before, it hardly ever is."""

ALONE = 1 << 15
"""Numbers of a block on the host up to which one thread is hardly slower than two, at half their time."""


@dataclass(frozen=True)
class BatchedLanczos(Lanczos):
    """Settings of a run on many systems; block: columns of each."""

    max_restarts: int = field(default=100, kw_only=True)

    def size(self, rows: int) -> int:
        """Columns of the basis of a system with so many rows; as many as rows where it spans the space."""
        return subspace_size(self.vectors, self.block, rows)

    @in_one_blas_thread
    def solve(self, A: LinearOperator, systems: int, *, progress: Progress | None = None) -> Eigenpairs:
        """The lowest eigenpairs of the `systems` equal diagonal blocks of A, where its fields are.

        Raises InputError where A is not Hermitian or zero, systems do not divide it or are so small that the
        basis would span their space, or the tolerance is below rounding; EigenpairsNotConverged, also for
        residuals that no longer fall.
        """
        self.check_operator(A)
        dimension = int(np.prod(A.shape))
        if systems < 1 or dimension % systems:
            raise InputError(
                f"Lanczos on {systems} systems needs an operator of as many equal blocks, got "
                f"{type(A).__name__} of dimension {dimension}"
            )
        rows = dimension // systems
        if self.size(rows) >= rows:
            raise InputError(
                f"{self.vectors} of {rows} eigenvectors of a system leave no room for Lanczos: take a dense "
                "diagonalisation"
            )
        alone = A.xp is np and dimension * self.block <= ALONE
        with kernels_in_one_thread() if alone else nullcontext():
            run = _Run(self, A, systems, rows)
            eigenpairs = run.eigenpairs(run.iterate(progress))
        if eigenpairs.status is not EigenStatus.CONVERGED:
            raise EigenpairsNotConverged(eigenpairs, run.limit)
        return eigenpairs


class _Run(Run[BatchedSubspace]):
    """One run, in the numbering of steps above.

    unfinished: of cycles that left something to do, since the filter was chosen, as the history. confirmed:
    values found when a fresh block began. estimates_hold: no residual was larger than it seemed to be.
    """

    def __init__(self, method: BatchedLanczos, A: LinearOperator, systems: int, rows: int) -> None:
        super().__init__(method, A, (systems, method.vectors))
        size = method.size(rows)
        self.restart_columns = kept_columns(method.vectors, size, method.block)
        every = self.restart_columns * systems
        self.spectrum = estimate_spectrum(A, method.seed, every)
        self.scale, self.matvecs = self.spectrum.scale, self.spectrum.steps
        self.filter = WindowChoice(None, None, every, method.block, GROWTH_OF_MANY).first(self.spectrum)
        self.space = BatchedSubspace(A.xp, systems, rows, A.dtype, size, method.block, method.seed)
        self.unfinished: History = []
        self.confirmed: NDArray[np.float64] | None = None
        self.estimates_hold = True
        self.ritz = np.empty((systems, 0))
        self.space.start(self.apply)

    @property
    def converged(self) -> int:
        """Wanted pairs below the tolerance."""
        return int((self.residuals <= self.limit).sum())

    def status(self) -> EigenStatus | None:
        """Steps 4 and 5."""
        ended = self._status_of_cycle() if self.restarts else None
        if ended is None and self.restarts >= self.method.max_restarts:
            return EigenStatus.RESTART_LIMIT
        return ended

    def _status_of_cycle(self) -> EigenStatus | None:
        small = self.residuals <= SAFETY * self.limit
        if not small.all():
            self.unfinished.append((self.restarts, int(small.sum()), float(self.residuals.max())))
            rests = resting(self.unfinished, self.A.dtype, self.scale)
            if rests is None and len(self.unfinished) > PATIENCE and self._some_inside():
                return EigenStatus.WINDOW
            if rests is None and self.restarts == 1:
                self._choose_again()
            return rests
        if self.values.max() >= self.filter.low:
            return None if self._choose_above() else EigenStatus.WINDOW
        values, before = np.sort(self.values), self.confirmed
        if (self.distinct() and not self.raised) or (
            before is not None and np.abs(values - before).max() <= TIE * self.limit
        ):
            return EigenStatus.CONVERGED
        self.confirmed = values
        self.space.start(self.apply, self.method.vectors)
        return None

    def cycle(self) -> None:
        """Steps 2 to 4; it ends as soon as all wanted pairs seem to be good, and keeps only them.

        One system is looked at after each step, the others where it seems to be done.
        """
        space, k, one, every = self.space, self.method.vectors, slice(1), slice(None)
        while not space.full:
            space.expand(self.apply)
            if space.full or space.used < LATE * space.size:
                continue
            if self._seems_done(*space.ritz(one), one) and self._seems_done(*space.ritz(), every):
                break
        self.ritz, vectors = space.ritz()
        done = self._seems_done(self.ritz, vectors, every)
        space.restart(self.ritz, vectors, k if done else min(self.restart_columns, space.used))
        self.restarts += 1
        self.measure(slice(0, k))
        self.estimates_hold &= not done or bool((self.residuals <= self.limit).all())

    def _seems_done(self, ritz: NDArray[np.float64], vectors: Matrices, systems: slice) -> bool:
        """True if residuals of A are below the limit by those of the filter F, before a fresh block.

        A y - lambda y has a part along each eigenvector that is (lambda_j - lambda) / (f_j - theta) times
        that of F y - theta y: largest at the upper end of the spectrum, where |f_j| <= 1.
        """
        k = self.method.vectors
        if self.confirmed is not None or not self.estimates_hold or (ritz[:, :k] <= 1).any():
            return False
        ratio = (self.filter.high - self.filter.eigenvalues(ritz[:, :k])) / (ritz[:, :k] - 1)
        estimates = ratio * self.space.residuals(vectors[..., :k], systems)
        return bool((estimates <= SAFETY * self.limit).all())

    def _some_inside(self) -> bool:
        """True where the last wanted Ritz value of a system lies inside the window."""
        return bool((self.ritz[:, self.method.vectors - 1] <= 1).any())

    def _choose_again(self) -> None:
        """Another filter where the window began far above what V keeps, or below what is wanted."""
        if self._some_inside():
            self._choose_above()
            return
        lowest = float(self.values.min())
        edge = float(self.filter.eigenvalues(self.ritz[:, : self.restart_columns][:, -1]).mean())
        edge += ABOVE * (edge - lowest)
        if self.filter.low - lowest > BAD * (edge - lowest):
            self._begin_anew(edge)

    def _choose_above(self) -> bool:
        """A window above all that was found; False if there is none."""
        top, high = float(self.values.max()), self.filter.high
        self._begin_anew(top + 0.1 * (high - top))
        return self.filter.low > top

    def _begin_anew(self, edge: float) -> None:
        """Begin again with a window from `edge` on, and random combinations of what was found."""
        window, before = (edge, self.filter.high), self.filter.low
        choice = WindowChoice(window, None, self.restart_columns, self.method.block, GROWTH_OF_MANY)
        self.filter = choice.first(self.spectrum)
        self.raised |= self.filter.low > before
        self.unfinished.clear()
        self.space.mix()
