"""One run of block Lanczos: the restart cycles of `stages.lqcd.eigen.block_lanczos`, in its numbering of
steps.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.chebyshev import ChebyshevFilter
from stages.lqcd.eigen.confirmation import TIE, largest_cluster, missing
from stages.lqcd.eigen.eigenpairs import Eigenpairs, EigenStatus
from stages.lqcd.eigen.rayleigh import measure, rotate_to_eigenvectors
from stages.lqcd.eigen.saved import restore, snapshot
from stages.lqcd.eigen.spectrum import estimate_spectrum
from stages.lqcd.eigen.subspace import Subspace
from stages.lqcd.eigen.window import MOST_MOVES, WindowChoice
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.errors import InputError

if TYPE_CHECKING:
    from stages.lqcd.eigen.block_lanczos import BlockLanczos, Checkpoint, Progress

SAFETY = 0.5
"""Pairs are locked at this part of the tolerance: step 7 mixes those of nearly equal eigenvalues."""

PATIENCE = 20
NEAR_ROUNDING = 1e4
"""A run ends if residuals below so many rounding units of the largest eigenvalue rest for so many cycles."""


class Run:
    """State of a run. scale: the largest eigenvalue in modulus; residuals, values: of the wanted pairs."""

    def __init__(
        self, method: BlockLanczos, A: LinearOperator, xp: Any, size: int, checkpoint: Checkpoint | None
    ) -> None:
        self.method, self.A, self.checkpoint = method, A, checkpoint
        self.started, self.before = time.perf_counter(), 0.0
        self.wanted = method.vectors
        self.dimension = int(np.prod(A.shape))
        self.block = min(method.block, self.dimension)
        self.restarts = self.matvecs = self.moves = 0
        self.fresh = self.fresh_steps = 0
        self.confirming = self.confirmed = False
        self.values = np.full(self.wanted, np.nan)
        self.residuals = np.full(self.wanted, np.inf)
        self.history: list[tuple[int, int, float]] = []
        self.space = Subspace(xp, A.shape, A.dtype, size, self.block, method.seed)
        if size < self.dimension:
            self._begin(xp)

    def _begin(self, xp: Any) -> None:
        """Step 1, or what a checkpoint has."""
        method, A, checkpoint = self.method, self.A, self.checkpoint
        self.kept = method.kept(self.space.size)
        self.choice = WindowChoice(method.window, method.degree, self.kept, self.block)
        saved = checkpoint.load() if checkpoint else None
        if saved is not None:
            restore(self, saved)
        else:
            spectrum = estimate_spectrum(A, xp, method.seed, self.kept)
            self.matvecs += spectrum.steps
            self.fingerprint = spectrum.fingerprint
            self.scale = max(abs(spectrum.lowest), abs(spectrum.found))
            if self.scale == 0:
                raise InputError(
                    f"{type(A).__name__} gives zero: every vector has the eigenvalue 0; check the gauge links"
                )
            self.filter = self.choice.first(spectrum)
            self.space.start()

    @property
    def seconds(self) -> float:
        """Wall time so far, that before a resume included."""
        return self.before + time.perf_counter() - self.started

    @property
    def limit(self) -> float:
        """What a residual may be."""
        return self.method.tolerance * self.scale

    @property
    def converged(self) -> int:
        """Wanted pairs that are locked."""
        return min(self.space.locked, self.wanted)

    def iterate(self, progress: Progress | None) -> EigenStatus:
        """Steps 2 to 6, or all at once."""
        if self.space.size == self.dimension:
            self._diagonalise()
            self._report(progress)
            return EigenStatus.CONVERGED
        while not self._finished():
            if self.restarts >= self.method.max_restarts:
                return EigenStatus.RESTART_LIMIT
            if self._held_up():
                return EigenStatus.PRECISION
            self._cycle()
            self._report(progress)
            if self.checkpoint is not None:
                self.checkpoint.save(partial(snapshot, self))
        return EigenStatus.CONVERGED

    def _held_up(self) -> bool:
        """Residuals near rounding that did not halve, and no pair locked, in so many cycles."""
        if len(self.history) <= PATIENCE or self.converged == self.wanted:
            return False
        (_, before, first), (_, now, last) = self.history[-PATIENCE - 1], self.history[-1]
        near = NEAR_ROUNDING * float(np.finfo(self.A.dtype).eps) * self.scale
        return before == now and first / 2 <= last <= near

    def _diagonalise(self) -> None:
        """Eigenvectors of A among the unit vectors of the whole space, with a dense matrix on the host."""
        space = self.space
        space.V[...] = 0
        index = array_module(space.V).arange(self.dimension)
        space.V.reshape(self.dimension, -1)[index, index] = 1
        values = rotate_to_eigenvectors(self.A, space.V, space.third)
        self.matvecs += _whole_blocks(self.dimension, self.block)
        self.filter = ChebyshevFilter(float(values[0]), float(values[-1]), 0)
        self.scale = float(abs(values).max())
        space.locked = space.used = self.dimension
        self.restarts = 1
        self.values, self.residuals = measure(self.A, space.V[..., : self.wanted], space.third)
        self.matvecs += _whole_blocks(self.wanted, self.block)

    def _report(self, progress: Progress | None) -> None:
        largest = float(self.residuals.max())
        self.history.append((self.restarts, self.converged, largest))
        if progress is not None:
            progress(self.restarts, self.converged, self.wanted, largest)

    def eigenpairs(self, status: EigenStatus) -> Eigenpairs:
        """Step 7."""
        space, k = self.space, self.wanted
        space.X = space.spare = space.third[..., :0]
        vectors = space.V[..., :k]
        if space.size < self.dimension:
            rotate_to_eigenvectors(self.A, vectors, space.third)
            self.matvecs += _whole_blocks(k, self.block)
        values, residuals = measure(self.A, vectors, space.third)
        self.matvecs += _whole_blocks(k, self.block)
        xp = array_module(vectors)
        if status is EigenStatus.CONVERGED and not residuals.max() <= self.limit:
            status = EigenStatus.RESIDUAL
        order = np.argsort(values, kind="stable")
        space.third = None
        sorted_vectors = (
            vectors if (order == np.arange(k)).all() else xp.take(vectors, xp.asarray(order), axis=-1)
        )
        return Eigenpairs(
            values[order],
            xp.ascontiguousarray(sorted_vectors),
            residuals[order],
            status,
            self.restarts,
            self.matvecs,
            self.seconds,
            (self.filter.low, self.filter.high),
            self.filter.degree,
            self.history,
            {"subspace": space.size, "second_passes": space.second_passes, "moved_windows": self.moves},
        )

    def _finished(self) -> bool:
        """Step 6."""
        space = self.space
        if space.locked < self.wanted:
            return False
        cluster = largest_cluster(np.sort(self.values), 10 * self.limit)
        if self.confirmed or cluster < self.block:
            return True
        if not self.confirming:
            self.confirming, self.fresh, self.fresh_steps = True, space.used, 0
            space.start()
        return False

    def _cycle(self) -> None:
        """Steps 2 to 4, or a part of 6."""
        space = self.space
        while not space.full:
            space.expand(self._apply)
            if self.confirming and self._confirm():
                return
        if self.confirming:
            values, vectors = space.ritz(self.fresh)
            space.restart(self.fresh, values, vectors, max(1, len(values) // 2))
            self.restarts += 1
            return
        values, vectors = space.ritz(space.locked)
        space.restart(space.locked, values, vectors, min(self.kept - space.locked, len(values)))
        self.restarts += 1
        gained = self._lock()
        self._move_window(values[gained:])

    def _apply(self, x: Array, spare: Array) -> tuple[Array, Array]:
        self.matvecs += x.shape[-1] * self.filter.degree
        return self.filter.apply(self.A, x, spare)

    def _lock(self) -> int:
        """Step 4: lock leading Ritz vectors whose true residual is small; returns how many.

        Inside the window, where p does not follow the eigenvalues, none can be trusted to be the next.
        """
        space = self.space
        open_ = slice(space.locked, min(self.wanted, space.used))
        values, residuals = measure(self.A, space.V[..., open_], space.third)
        self.matvecs += _whole_blocks(len(values), self.block)
        self.values[open_], self.residuals[open_] = values, residuals
        small = (residuals <= SAFETY * self.limit) & ((values < self.filter.low) | (self.filter.degree == 1))
        gained = int(small.size if small.all() else np.argmin(small))
        space.locked += gained
        return gained

    def _move_window(self, ritz: NDArray[np.float64]) -> None:
        """Another filter where the spectrum found asks for it; ritz: values of p of what is not locked."""
        if self.space.locked >= self.wanted or self.moves == MOST_MOVES or len(ritz) == 0:
            return
        known = self.values[np.isfinite(self.values)]
        kept = self.kept - self.space.locked
        moved = self.choice.moved(self.filter, np.sort(known), ritz, kept)
        if moved is not None:
            self.filter, self.moves = moved, self.moves + 1
            self.space.combine(slice(self.space.locked, self.space.used))

    def _confirm(self) -> bool:
        """After each block of step 6: True if it is decided whether anything is missing.

        Copies may hide in what V keeps, to which the fresh block is orthogonal: both together count.
        """
        space, p = self.space, self.filter.values(np.sort(self.values))
        self.fresh_steps += 1
        largest, fresh = (float(space.ritz(first)[0][0]) for first in (space.locked, self.fresh))
        verdict = largest > p[-1] * (1 + TIE) or missing(
            p, fresh, self.fresh_steps, self.block, self.dimension
        )
        if verdict is None:
            return False
        self.confirming, self.confirmed = False, not verdict
        if verdict:
            self._unlock(largest)
        return True

    def _unlock(self, largest: float) -> None:
        """Begin anew, but for the locked pairs below the missing one, whose Ritz value of p is `largest`.

        At least a block of pairs competes again: as many copies may be missing. All else that was found goes
        into the next block, so that every residual is again one of V and X.
        """
        space = self.space
        order = np.argsort(self.values, kind="stable")
        self.values, self.residuals = self.values[order], self.residuals[order]
        space.permute(order)
        lower = int((self.filter.values(self.values) >= largest).sum())
        space.locked = max(0, min(lower, self.wanted - self.block))
        space.combine(slice(space.locked, space.used))
        self.values[space.locked :], self.residuals[space.locked :] = np.nan, np.inf


def _whole_blocks(columns: int, block: int) -> int:
    return -(-columns // block) * block
