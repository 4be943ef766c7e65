"""Block thick-restart Lanczos with a Chebyshev filter: the lowest eigenpairs of a Hermitian operator.

K. Wu, H. Simon, SIAM J. Matrix Anal. Appl. 22 (2000) 602 (thick restart); D. Calvetti, L. Reichel, D. C.
Sorensen, ETNA 2 (1994) 1 (filters); Y. Zhou, Y. Saad, SIAM J. Matrix Anal. Appl. 29 (2007) 954 (Chebyshev
filters whose window follows the spectrum found). In blocks: one pass over links and basis serves all columns.

    1  X random, orthonormal; V empty
    2  until V has no room:  append X to V, W = p(A) X,
       H gets its column V^H W, X S = W - V V^H W (thin QR)
    3  Ritz vectors of H; V becomes the leading ones, in place
    4  for the wanted ones lambda = v^H A v and |A v - lambda v|;
       leading ones below the tolerance are locked
    5  until all are locked: 2, with the same X
    6  if as many eigenvalues coincide as a block has columns,
       or the window was raised, whose filter damps less now:
       a fresh random block; 2 until `confirmation` decides
    7  eigenvectors of V^H A V, and their residuals

Where V would span the whole space, step 7 alone is done, on unit vectors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.chebyshev import ChebyshevFilter, RepeatedFilter
from stages.lqcd.eigen.confirmation import SAME, largest_cluster, missing
from stages.lqcd.eigen.eigenpairs import Eigenpairs, EigenpairsNotConverged, EigenStatus
from stages.lqcd.eigen.lanczos import SAFETY, TIE, Lanczos, Progress
from stages.lqcd.eigen.memory import available_bytes, check_memory, needed_bytes
from stages.lqcd.eigen.rayleigh import measure, rotate_to_eigenvectors
from stages.lqcd.eigen.resting import above_rounding, at_rounding, vectors_to_ask_for
from stages.lqcd.eigen.saved import RunState, restored
from stages.lqcd.eigen.spectrum import estimate_spectrum, fingerprint
from stages.lqcd.eigen.subspace import Subspace
from stages.lqcd.eigen.window import MOST_MOVES, WindowChoice, kept_columns, subspace_size
from stages.lqcd.kernels import lane_blas
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import contiguous
from stages.lqcd.kernels.host_lapack import in_one_blas_thread
from stages.lqcd.solvers.recurrence import BreakdownError


class RestartStore(Protocol):
    """Storage for the state that a run needs to go on after a kill."""

    def load(self) -> dict[str, NDArray] | None:
        """The arrays saved last, or None."""

    def save(self, state: Callable[[], dict[str, NDArray]]) -> None:
        """Keep the arrays that `state` gives in place of those before; not calling it keeps those."""


@dataclass(frozen=True)
class BlockLanczos(Lanczos):
    """Settings of a run on one system.

    subspace: columns of the basis; degree, window (low, high): of the filter; by default all three are
    chosen.
    """

    subspace: int | None = None
    degree: int | None = None
    window: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degree is not None and self.degree < 1:
            raise InputError(f"the degree of the Chebyshev filter must be at least 1, got {self.degree}")
        if self.window is not None and not self.window[0] < self.window[1]:
            raise InputError(f"the Chebyshev window must have low < high, got {self.window}")

    @in_one_blas_thread
    def solve(
        self,
        A: LinearOperator,
        xp: Any = np,
        progress: Progress | None = None,
        checkpoint: RestartStore | None = None,
        on_failure: str = "raise",
    ) -> Eigenpairs:
        """The lowest eigenpairs of A, with vectors in arrays of `xp`.

        checkpoint: saved to after each restart cycle; a run that finds one of the same configuration goes
        on from there, and refuses one of another operator. on_failure: 'raise' EigenpairsNotConverged or
        'return' what there is. Raises InputError for an operator that is not Hermitian, is zero or gives NaN,
        more vectors than its dimension, a subspace too small, a degree that rounding forbids, a window that
        leaves out the upper end of the spectrum, or too little memory, which is looked at before the start.
        """
        self._check(A, on_failure)
        available = available_bytes(xp)
        check_memory(self.memory(A), available, self.vectors, self.fitting(A, available))
        try:
            run = _Run(self, A, xp, self._subspace(A, self.vectors), checkpoint)
            eigenpairs = run.eigenpairs(run.iterate(progress))
        except BreakdownError as breakdown:
            raise InputError(
                f"squares of what {type(A).__name__} gives are no numbers in {A.dtype}: check the gauge "
                "links, or multiply the operator by a number that brings its largest eigenvalue near one"
            ) from breakdown
        if eigenpairs.status is not EigenStatus.CONVERGED and on_failure == "raise":
            raise EigenpairsNotConverged(eigenpairs, run.limit)
        return eigenpairs

    def memory(self, A: LinearOperator) -> int:
        """Bytes that a run holds at most, beside the operator's own links."""
        return self._memory(A, self.vectors)

    def fitting(self, A: LinearOperator, available: int) -> int:
        """The largest number of vectors that a run can find in so many bytes."""
        few, many = 0, int(np.prod(A.shape)) + 1
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (middle, many) if self._memory(A, middle) <= available else (few, middle)
        return few

    def _memory(self, A: LinearOperator, vectors: int) -> int:
        dimension = int(np.prod(A.shape))
        subspace = max(self._subspace(A, vectors), vectors)
        return needed_bytes(dimension, A.dtype.itemsize, vectors, self.block, subspace)

    def _subspace(self, A: LinearOperator, vectors: int) -> int:
        """Columns of the basis: the whole space, or so few that a block more has room in it."""
        dimension = int(np.prod(A.shape))
        size = self.subspace or subspace_size(vectors, self.block, dimension)
        return size if size + self.block <= dimension else dimension

    def _check(self, A: LinearOperator, on_failure: str) -> None:
        dimension = int(np.prod(A.shape))
        if on_failure not in ("raise", "return"):
            raise InputError(f"on_failure must be 'raise' or 'return', got {on_failure!r}")
        self.check_operator(A)
        if self.vectors > dimension:
            raise InputError(
                f"{self.vectors} eigenvectors are wanted of an operator of dimension {dimension} on fields "
                f"{A.shape}: ask for at most {dimension}"
            )
        smallest = min(self.vectors + 2 * self.block, dimension)
        if self._subspace(A, self.vectors) < smallest:
            raise InputError(
                f"a subspace of {self.subspace} vectors is too small for {self.vectors} eigenvectors in "
                f"blocks of {self.block}: give at least {smallest} (by default it is "
                f"{subspace_size(self.vectors, self.block, dimension)})"
            )

    def restart_columns(self, subspace: int) -> int:
        """Columns that a restart keeps."""
        return kept_columns(self.vectors, subspace, self.block)


class _Run:
    """One run, in the numbering of steps above; restart_columns: those that a restart keeps."""

    def __init__(
        self, method: BlockLanczos, A: LinearOperator, xp: Any, size: int, checkpoint: RestartStore | None
    ) -> None:
        self.method, self.A, self.checkpoint = method, A, checkpoint
        self.repeated = RepeatedFilter(A)
        self.started = time.perf_counter()
        self.wanted, self.dimension = method.vectors, int(np.prod(A.shape))
        self.block, self.restart_columns = min(method.block, self.dimension), method.restart_columns(size)
        self.choice = WindowChoice(method.window, method.degree, self.restart_columns, self.block)
        self.dense = size == self.dimension
        space = Subspace(xp, A.shape, A.dtype, size, self.block, method.seed)
        self.state = self._diagonalised(space) if self.dense else self._begun(space, xp)

    def _begun(self, space: Subspace, xp: Any) -> RunState:
        """State after step 1, or from a checkpoint.

        It is told to be of this operator by one application of A, which `matvecs` does not count.
        """
        method, A = self.method, self.A
        saved = self.checkpoint.load() if self.checkpoint else None
        if saved is not None:
            present = fingerprint(A, xp, method.seed)
            return restored(saved, space, self._configuration(space.size), present)
        spectrum = estimate_spectrum(A, xp, method.seed, self.restart_columns)
        state = RunState(
            space,
            self.choice.first(spectrum),
            spectrum.scale,
            spectrum.fingerprint,
            np.full(self.wanted, np.nan),
            np.full(self.wanted, np.inf),
            matvecs=spectrum.steps,
        )
        space.start()
        return state

    def _diagonalised(self, space: Subspace) -> RunState:
        """Eigenvectors of A among the unit vectors of the whole space, with a dense matrix on the host."""
        space.V[...] = 0
        index = to_device_like(np.arange(self.dimension), space.V)
        space.V.reshape(self.dimension, -1)[index, index] = 1
        values = rotate_to_eigenvectors(self.A, space.V, space.third)
        space.locked = space.used = self.dimension
        matvecs = sum(_whole_blocks(columns, self.block) for columns in (self.dimension, self.wanted))
        return RunState(
            space,
            ChebyshevFilter(float(values[0]), float(values[-1]), 0),
            float(abs(values).max()),
            np.empty(0),
            *measure(self.A, space.V[..., : self.wanted], space.third),
            restarts=1,
            matvecs=matvecs,
        )

    def _configuration(self, size: int) -> NDArray[np.float64]:
        """Settings that runs have in common if they may share a checkpoint."""
        A, method = self.A, self.method
        sizes = [*A.shape, A.dtype.itemsize, self.wanted, self.block, size]
        return np.array([*sizes, method.seed, method.tolerance], float)

    @property
    def seconds(self) -> float:
        """Wall time so far, that before a resume included."""
        return self.state.seconds + time.perf_counter() - self.started

    @property
    def limit(self) -> float:
        """The largest residual of a converged pair."""
        return self.method.tolerance * self.state.scale

    @property
    def converged(self) -> int:
        """Wanted pairs that are locked."""
        return min(self.state.space.locked, self.wanted)

    def iterate(self, progress: Progress | None) -> EigenStatus:
        """Steps 2 to 6."""
        if self.dense:
            self._report(progress)
            return EigenStatus.CONVERGED
        while not self._finished():
            if self.state.restarts >= self.method.max_restarts:
                return EigenStatus.RESTART_LIMIT
            if self.converged < self.wanted:
                if at_rounding(self.state.history, self.A.dtype, self.state.scale):
                    return EigenStatus.PRECISION
                if above_rounding(self.state.history):
                    return EigenStatus.STALLED
            self._cycle()
            self._report(progress)
            if self.checkpoint is not None:
                self.checkpoint.save(
                    lambda: self.state.arrays(self._configuration(self.state.space.size), self.seconds)
                )
        return EigenStatus.CONVERGED

    def _report(self, progress: Progress | None) -> None:
        largest = float(self.state.residuals.max())
        self.state.history.append((self.state.restarts, self.converged, largest))
        if progress is not None:
            progress(self.state.restarts, self.converged, self.wanted, largest)

    def eigenpairs(self, status: EigenStatus) -> Eigenpairs:
        """Step 7."""
        space, k = self.state.space, self.wanted
        advised = {}
        if status is EigenStatus.STALLED:
            estimates = self.state.filter.eigenvalues(np.maximum(space.ritz(0)[0], 1))
            advised["ask_for"] = vectors_to_ask_for(estimates, k)
        self.repeated.clear()
        space.X = space.spare = space.third[..., :0]
        vectors = space.V[..., :k]
        if not self.dense:
            rotate_to_eigenvectors(self.A, vectors, space.third)
            self.state.matvecs += _whole_blocks(k, self.block)
        values, residuals = measure(self.A, vectors, space.third)
        self.state.matvecs += _whole_blocks(k, self.block)
        if status is EigenStatus.CONVERGED and not residuals.max() <= self.limit:
            status = EigenStatus.RESIDUAL
        order = np.argsort(values, kind="stable")
        del space.third
        sorted_vectors = vectors if (order == np.arange(k)).all() else lane_blas.lane_take(vectors, order)
        return Eigenpairs(
            values[order],
            contiguous(sorted_vectors),
            residuals[order],
            status,
            self.state.restarts,
            self.state.matvecs,
            self.seconds,
            (self.state.filter.low, self.state.filter.high),
            self.state.filter.degree,
            self.state.history,
            {
                "subspace": space.size,
                "second_passes": space.second_passes,
                "moved_windows": self.state.moves,
                **advised,
            },
        )

    def _finished(self) -> bool:
        """Step 6."""
        space = self.state.space
        if space.locked < self.wanted:
            return False
        cluster = largest_cluster(np.sort(self.state.values), TIE * self.limit)
        if self.state.confirmed or (cluster < self.block and not self.state.raised):
            return True
        if not self.state.confirming:
            self.state.confirming, self.state.fresh, self.state.fresh_steps = True, space.used, 0
            space.start()
        return False

    def _cycle(self) -> None:
        """Steps 2 to 4, or a part of 6."""
        space = self.state.space
        while not space.full:
            space.expand(self._apply)
            if self.state.confirming and self._confirm():
                return
        if self.state.confirming:
            values, vectors = space.ritz(self.state.fresh)
            space.restart(self.state.fresh, values, vectors, max(1, len(values) // 2))
            self.state.restarts += 1
            return
        values, vectors = space.ritz(space.locked)
        space.restart(space.locked, values, vectors, min(self.restart_columns - space.locked, len(values)))
        self.state.restarts += 1
        gained = self._lock()
        self._move_window(values[gained:])

    def _apply(self, x: Array, spare: Array) -> tuple[Array, Array]:
        self.state.matvecs += x.shape[-1] * self.state.filter.degree
        return self.repeated.apply(self.state.filter, x, spare)

    def _lock(self) -> int:
        """Step 4: lock leading Ritz vectors whose true residual is small; returns how many.

        Inside the window, where p does not follow the eigenvalues, none can be trusted to be the next.
        """
        space = self.state.space
        open_ = slice(space.locked, min(self.wanted, space.used))
        values, residuals = measure(self.A, space.V[..., open_], space.third)
        self.state.matvecs += _whole_blocks(len(values), self.block)
        self.state.values[open_], self.state.residuals[open_] = values, residuals
        small = (residuals <= SAFETY * self.limit) & (
            (values < self.state.filter.low) | (self.state.filter.degree == 1)
        )
        gained = int(small.size if small.all() else np.argmin(small))
        space.locked += gained
        return gained

    def _move_window(self, ritz: NDArray[np.float64]) -> None:
        """Another filter where the spectrum found asks for it; ritz: values of p of what is not locked."""
        if self.state.space.locked >= self.wanted or self.state.moves == MOST_MOVES or len(ritz) == 0:
            return
        known = self.state.values[np.isfinite(self.state.values)]
        count = self.restart_columns - self.state.space.locked
        moved = self.choice.moved(self.state.filter, np.sort(known), ritz, count)
        if moved is not None:
            self.state.raised |= moved.low > self.state.filter.low
            self.state.filter, self.state.moves = moved, self.state.moves + 1
            self.state.space.combine(slice(self.state.space.locked, self.state.space.used))

    def _confirm(self) -> bool:
        """After each block of step 6: True if it is decided whether anything is missing.

        Copies may hide in what V keeps, to which the fresh block is orthogonal: both together count.
        """
        space, p = self.state.space, self.state.filter.values(np.sort(self.state.values))
        self.state.fresh_steps += 1
        largest, fresh = (float(space.ritz(first)[0][0]) for first in (space.locked, self.state.fresh))
        verdict = largest > p[-1] * (1 + SAME) or missing(
            p, fresh, self.state.fresh_steps, self.block, self.dimension
        )
        if verdict is None:
            return False
        self.state.confirming, self.state.confirmed = False, not verdict
        if verdict:
            self._unlock(largest)
        return True

    def _unlock(self, largest: float) -> None:
        """Begin anew, but for the locked pairs below the missing one, whose Ritz value of p is `largest`.

        At least a block of pairs competes again: as many copies may be missing. All else that was found goes
        into the next block, so that every residual is again one of V and X.
        """
        space = self.state.space
        order = np.argsort(self.state.values, kind="stable")
        self.state.values, self.state.residuals = self.state.values[order], self.state.residuals[order]
        space.permute(order)
        lower = int((self.state.filter.values(self.state.values) >= largest).sum())
        space.locked = max(0, min(lower, self.wanted - self.block))
        space.combine(slice(space.locked, space.used))
        self.state.values[space.locked :], self.state.residuals[space.locked :] = np.nan, np.inf


def _whole_blocks(columns: int, block: int) -> int:
    return -(-columns // block) * block
