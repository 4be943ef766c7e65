"""Block Lanczos on many systems at once: the lowest eigenpairs of each diagonal block of an operator.

The operator acts on fields whose equal parts, one after the other, do not mix: the time slices of a lattice.
All parts go through one filter, one application and one batched product together (batch x block), so that
small systems fill a large device. Thick restarts and filters are those of `stages.lqcd.eigen.block_lanczos`:

    1  X random, orthonormal; V empty
    2  until V has no room: append X to V, W = p(A) X,
       H gets its column V^H W, X = W - V V^H W, orthonormal
    3  Ritz vectors of H; V becomes the leading ones
    4  values and true residuals of the wanted ones;
       2 until all of them are below the tolerance in all systems
    5  where as many eigenvalues of a system coincide as a block has columns,
       or the window was raised, whose filter damps less now:
       a fresh random X orthogonal to V; 2 until it changes nothing

After the first cycle the filter is chosen again from what was found, if the first choice was a bad one; and
whenever eigenvalues found are not all below its window, where it does not tell the lowest from others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.batched_subspace import BatchedSubspace, Matrices, eigh
from stages.lqcd.eigen.chebyshev import RepeatedFilter
from stages.lqcd.eigen.confirmation import largest_cluster
from stages.lqcd.eigen.eigenpairs import BatchedEigenpairs, EigenpairsNotConverged, EigenStatus
from stages.lqcd.eigen.lanczos import SAFETY, TIE, Lanczos, Progress
from stages.lqcd.eigen.resting import PATIENCE, History, above_rounding, at_rounding, vectors_to_ask_for
from stages.lqcd.eigen.spectrum import estimate_spectrum
from stages.lqcd.eigen.window import ABOVE, GROWTH_OF_MANY, WindowChoice, kept_columns, subspace_size
from stages.lqcd.kernels import batched_basis
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, contiguous_slices, slices_like
from stages.lqcd.kernels.host_lapack import in_one_blas_thread

BAD = 1.6
"""A filter is chosen again if its window begins this many times as far from the lowest value as it should."""

LATE = 0.75
"""Part of the basis in use from which on a cycle looks whether it is done: before, it hardly ever is."""


@dataclass(frozen=True)
class BatchedLanczos(Lanczos):
    """Settings of a run on many systems; block: columns of each."""

    max_restarts: int = field(default=100, kw_only=True)

    def size(self, rows: int) -> int:
        """Columns of the basis of a system with so many rows; as many as rows where it spans the space."""
        return subspace_size(self.vectors, self.block, rows)

    @in_one_blas_thread
    def solve(
        self, A: LinearOperator, systems: int, xp: Any = np, progress: Progress | None = None
    ) -> BatchedEigenpairs:
        """The lowest eigenpairs of the `systems` equal diagonal blocks of A, with vectors in arrays of `xp`.

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
        run = _Run(self, A, systems, xp)
        eigenpairs = run.eigenpairs(run.iterate(progress))
        if eigenpairs.status is not EigenStatus.CONVERGED:
            raise EigenpairsNotConverged(eigenpairs, run.limit)
        return eigenpairs


class _Run:
    """State of a run; values, residuals ``[S, k]``: of the wanted Ritz vectors."""

    def __init__(self, method: BatchedLanczos, A: LinearOperator, systems: int, xp: Any) -> None:
        self.method, self.A, self.systems, self.xp = method, A, systems, xp
        self.started = time.perf_counter()
        self.rows = int(np.prod(A.shape)) // systems
        size = method.size(self.rows)
        self.restart_columns = kept_columns(method.vectors, size, method.block)
        self.spectrum = estimate_spectrum(A, xp, method.seed, self.restart_columns * systems)
        self.scale = self.spectrum.scale
        choice = WindowChoice(None, None, self.restart_columns * systems, method.block, GROWTH_OF_MANY)
        self.filter, self.raised = choice.first(self.spectrum), False
        self.repeated = RepeatedFilter(A)
        self.restarts, self.matvecs = 0, self.spectrum.steps
        self.history: History = []  # of cycles that left something to do, since the filter was chosen
        self.values = np.full((systems, method.vectors), np.nan)
        self.residuals = np.full(self.values.shape, np.inf)
        self.space = BatchedSubspace(xp, systems, self.rows, A.dtype, size, method.block, method.seed)
        self.image = slices_like(self.space.X)

    @property
    def limit(self) -> float:
        """The largest residual of a converged pair."""
        return self.method.tolerance * self.scale

    def iterate(self, progress: Progress | None) -> EigenStatus:
        """Steps 1 to 5."""
        self.space.start()
        confirmed: NDArray[np.float64] | None = None
        while self.restarts < self.method.max_restarts:
            ritz = self._cycle(look=confirmed is None)
            if progress is not None:
                done = int((self.residuals <= self.limit).sum())
                progress(self.restarts, done, self.values.size, float(self.residuals.max()))
            small = self.residuals <= SAFETY * self.limit
            if not small.all():
                self.history.append((self.restarts, int(small.sum()), float(self.residuals.max())))
                if at_rounding(self.history, self.A.dtype, self.scale):
                    return EigenStatus.PRECISION
                if above_rounding(self.history):
                    return EigenStatus.STALLED
                if len(self.history) > PATIENCE and (ritz[:, self.method.vectors - 1] <= 1).any():
                    return EigenStatus.WINDOW
                if self.restarts == 1:
                    self._choose_again(ritz)
                continue
            if self.values.max() >= self.filter.low:
                if not self._choose_above():
                    return EigenStatus.WINDOW
                continue
            values = np.sort(self.values)
            if (self._distinct(values) and not self.raised) or (
                confirmed is not None and np.abs(values - confirmed).max() <= TIE * self.limit
            ):
                return EigenStatus.CONVERGED
            confirmed = values
            self.space.start(self.method.vectors)
        return EigenStatus.RESTART_LIMIT

    def _distinct(self, values: NDArray[np.float64]) -> bool:
        """True if no system has as many equal eigenvalues as a block has columns."""
        return all(largest_cluster(each, TIE * self.limit) < self.method.block for each in values)

    def _cycle(self, look: bool) -> NDArray[np.float64]:
        """Steps 2 to 4; all Ritz values ``[S, used]``. look: end as soon as all wanted pairs seem to be good.

        One system is looked at after each step, the others where it seems to be done.
        """
        space, one, every = self.space, slice(1), slice(None)
        while not space.full:
            space.expand(self._apply)
            if not look or space.full or space.used < LATE * space.size:
                continue
            if self._seems_done(*space.ritz(one), one) and self._seems_done(*space.ritz(), every):
                break
        ritz, vectors = space.ritz()
        space.restart(ritz, vectors, min(self.restart_columns, space.used))
        self.restarts += 1
        self._measure()
        return ritz

    def _seems_done(self, ritz: NDArray[np.float64], vectors: Matrices, systems: slice) -> bool:
        """True if residuals of A are below the limit by those of the filter F.

        A y - lambda y has a part along each eigenvector that is (lambda_j - lambda) / (f_j - theta) times
        that of F y - theta y: largest at the upper end of the spectrum, where |f_j| <= 1.
        """
        k = self.method.vectors
        if (ritz[:, :k] <= 1).any():
            return False
        ratio = (self.filter.high - self.filter.eigenvalues(ritz[:, :k])) / (ritz[:, :k] - 1)
        estimates = ratio * self.space.residuals(vectors[..., :k], systems)
        return bool((estimates <= SAFETY * self.limit).all())

    def _apply(self, x: Array, spare: Array) -> tuple[Array, Array]:
        self.matvecs += x.shape[-1] * self.filter.degree
        return self.repeated.apply(self.filter, x, spare)

    def _choose_again(self, ritz: NDArray[np.float64]) -> None:
        """Another filter where the window began far above what V keeps, or below what is wanted."""
        if (ritz[:, self.method.vectors - 1] <= 1).any():
            self._choose_above()
            return
        lowest = float(self.values.min())
        edge = float(self.filter.eigenvalues(ritz[:, self.space.used - 1]).mean())
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
        choice = WindowChoice(
            (edge, self.filter.high), None, self.restart_columns, self.method.block, GROWTH_OF_MANY
        )
        before, self.filter = self.filter.low, choice.first(self.spectrum)
        self.raised |= self.filter.low > before
        self.history.clear()
        self.space.mix()

    def _measure(self) -> None:
        """Rayleigh quotients and true residuals of the leading Ritz vectors."""
        for columns, block, image in self._images():
            count = columns.stop - columns.start
            quotients, norms2 = batched_basis.rayleigh(block, image)
            self.values[:, columns] = as_numpy(quotients)[:, :count]
            self.residuals[:, columns] = np.sqrt(as_numpy(norms2))[:, :count]

    def _images(self) -> Iterator[tuple[slice, Array, Array]]:
        """Leading columns of V, block by block: which, the block that holds them, and A times it."""
        space, k, width = self.space, self.method.vectors, self.method.block
        for first in range(0, k, width):
            columns = slice(first, min(first + width, k))
            assign(space.spare, space.V[..., first : first + width])  # the basis is wider than what is wanted
            self.A.apply(self._field(space.spare), self._field(self.image))
            self.matvecs += width
            yield columns, space.spare, self.image

    def _field(self, block: Array) -> Array:
        """A block ``[S, n, b]`` as a field of A."""
        return block.reshape(*self.A.shape, -1)

    def eigenpairs(self, status: EigenStatus) -> BatchedEigenpairs:
        """The wanted pairs: eigenvectors of V^H A V, measured once more."""
        space, k = self.space, self.method.vectors
        extras = {}
        if status is EigenStatus.STALLED:
            worst = int(self.residuals.max(axis=1).argmax())
            estimates = self.filter.eigenvalues(np.maximum(space.ritz()[0][worst], 1))
            extras["ask_for"] = vectors_to_ask_for(estimates, k)
        vectors = space.V[..., :k]
        projected: Matrices = np.empty((self.systems, k, k), complex)
        for columns, _, image in self._images():
            count = columns.stop - columns.start
            projected[:, :, columns] = as_numpy(batched_basis.project(vectors, image))[..., :count]
        _, rotation = eigh((projected + projected.conj().swapaxes(1, 2)) / 2)
        batched_basis.rotate_in_place(vectors, to_device_like(np.ascontiguousarray(rotation), vectors))
        self._measure()
        if status is EigenStatus.CONVERGED and not self.residuals.max() <= self.limit:
            status = EigenStatus.RESIDUAL
        return BatchedEigenpairs(
            self.values,
            contiguous_slices(vectors),
            self.residuals,
            status,
            self.restarts,
            self.matvecs,
            self.filter.degree,
            time.perf_counter() - self.started,
            extras,
        )
