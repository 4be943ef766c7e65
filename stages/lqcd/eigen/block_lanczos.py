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

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.chebyshev import ChebyshevFilter
from stages.lqcd.eigen.eigenpairs import Eigenpairs, EigenpairsNotConverged, EigenStatus
from stages.lqcd.eigen.lanczos import SAFETY, SAME, Lanczos, Progress, Run, missing, resting
from stages.lqcd.eigen.memory import available_bytes, check_memory, needed_bytes
from stages.lqcd.eigen.subspace import Subspace
from stages.lqcd.eigen.window import (
    MOST_MOVES,
    WindowChoice,
    estimate_spectrum,
    fingerprint,
    kept_columns,
    subspace_size,
)
from stages.lqcd.kernels.dispatch import to_device_like
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
        for name, value in (("subspace", self.subspace), ("degree of the Chebyshev filter", self.degree)):
            if value is not None:
                check_whole(name, value, 1)
        if self.window is not None and not self.window[0] < self.window[1]:
            raise InputError(f"the Chebyshev window must have low < high, got {self.window}")

    @in_one_blas_thread
    def solve(
        self,
        A: LinearOperator,
        *,
        progress: Progress | None = None,
        checkpoint: RestartStore | None = None,
        on_failure: str = "raise",
    ) -> Eigenpairs:
        """The lowest eigenpairs of A, with vectors where its fields are.

        checkpoint: saved to after each restart cycle; a run that finds one of the same configuration goes
        on from there, and refuses one of another operator. on_failure: 'raise' EigenpairsNotConverged or
        'return' what there is. Raises InputError for an operator that is not Hermitian, is zero or gives NaN,
        more vectors than its dimension, a subspace too small, a degree that rounding forbids, a window that
        leaves out the upper end of the spectrum, or too little memory, which is looked at before the start.
        """
        self._check(A, on_failure)
        available = available_bytes(A.xp)
        check_memory(self.memory(A), available, self.vectors, self.fitting(A, available))
        try:
            run = _Run(self, A, self._subspace(A, self.vectors), checkpoint)
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
        counts = range(1, int(np.prod(A.shape)) + 1)
        return bisect_right(counts, available, key=lambda vectors: self._memory(A, vectors))

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


class _Run(Run[Subspace]):
    """One run, in the numbering of steps above.

    moves: windows moved. fresh, fresh_steps, confirming, confirmed: of the search for missed eigenvalues.
    seconds_before: of runs from whose checkpoint it goes on.
    """

    def __init__(
        self, method: BlockLanczos, A: LinearOperator, size: int, checkpoint: RestartStore | None
    ) -> None:
        super().__init__(method, A, (method.vectors,))
        self.wanted, self.dimension = method.vectors, int(np.prod(A.shape))
        self.dense = size == self.dimension
        self.checkpoint = None if self.dense else checkpoint
        self.restart_columns = kept_columns(self.wanted, size, method.block)
        self.space = Subspace(A.xp, A.shape, A.dtype, size, min(method.block, self.dimension), method.seed)
        self.choice = WindowChoice(
            method.window,
            method.degree,
            self.restart_columns,
            self.space.block,
            accuracy=method.tolerance / self.space.unit,
        )
        self.moves = self.fresh = self.fresh_steps = 0
        self.confirming = self.confirmed = False
        self.seconds_before = 0.0
        saved = self.checkpoint.load() if self.checkpoint else None
        if saved is not None:
            self._restore(saved)
        elif not self.dense:
            self._start()

    def _start(self) -> None:
        """Step 1."""
        spectrum = estimate_spectrum(self.A, self.method.seed, self.restart_columns)
        self.filter, self.scale = self.choice.first(spectrum), spectrum.scale
        self.fingerprint, self.matvecs = spectrum.fingerprint, spectrum.steps
        self.space.start()

    @property
    def seconds(self) -> float:
        """Wall time so far, that before a resume included."""
        return self.seconds_before + super().seconds

    @property
    def converged(self) -> int:
        """Wanted pairs that are locked."""
        return min(self.space.locked, self.wanted)

    def status(self) -> EigenStatus | None:
        """Steps 5 and 6."""
        if self.dense:
            return EigenStatus.CONVERGED if self.restarts else None
        if self._finished():
            return EigenStatus.CONVERGED
        if self.restarts >= self.method.max_restarts:
            return EigenStatus.RESTART_LIMIT
        return resting(self.history, self.A.dtype, self.scale) if self.converged < self.wanted else None

    def _finished(self) -> bool:
        """Step 6."""
        if self.space.locked < self.wanted:
            return False
        if self.confirmed or (self.distinct() and not self.raised):
            return True
        if not self.confirming:
            self.confirming, self.fresh, self.fresh_steps = True, self.space.used, 0
            self.space.start()
        return False

    def cycle(self) -> None:
        """Steps 2 to 4, or a part of 6."""
        space = self.space
        if self.dense:
            self._diagonalise()
            return
        while not space.full:
            space.expand(self.apply)
            if self.confirming and self._confirm():
                return
        self.restarts += 1
        if self.confirming:
            values, vectors = space.ritz(self.fresh)
            space.restart(self.fresh, values, vectors, max(1, len(values) // 2))
            return
        values, vectors = space.ritz(space.locked)
        space.restart(space.locked, values, vectors, min(self.restart_columns - space.locked, len(values)))
        gained = self._lock()
        self._move_window(values[gained:])

    def _diagonalise(self) -> None:
        """Eigenvectors of A among the unit vectors of the whole space, with a dense matrix on the host."""
        space = self.space
        space.V[...] = 0
        index = to_device_like(np.arange(self.dimension), space.V)
        space.V.reshape(self.dimension, -1)[index, index] = 1
        values = space.diagonalise(self.A, self.dimension)
        space.locked = space.used = self.dimension
        self.filter = ChebyshevFilter(float(values[0]), float(values[-1]), 0)
        self.scale = float(abs(values).max())
        self.restarts, self.matvecs = 1, self.whole_blocks(self.dimension)
        self.measure(slice(0, self.wanted))

    def _lock(self) -> int:
        """Step 4: lock leading Ritz vectors whose true residual is small; returns how many.

        Inside the window, where p does not follow the eigenvalues, none can be trusted to be the next.
        """
        open_ = slice(self.space.locked, min(self.wanted, self.space.used))
        self.measure(open_)
        small = (self.residuals[open_] <= SAFETY * self.limit) & (
            (self.values[open_] < self.filter.low) | (self.filter.degree == 1)
        )
        gained = int(small.size if small.all() else np.argmin(small))
        self.space.locked += gained
        return gained

    def _move_window(self, ritz: NDArray[np.float64]) -> None:
        """Another filter where the spectrum found asks for it; ritz: values of p of what is not locked."""
        space = self.space
        if space.locked >= self.wanted or self.moves == MOST_MOVES or len(ritz) == 0:
            return
        known = self.values[np.isfinite(self.values)]
        moved = self.choice.moved(self.filter, np.sort(known), ritz, self.restart_columns - space.locked)
        if moved is not None:
            self.raised |= moved.low > self.filter.low
            self.filter, self.moves = moved, self.moves + 1
            space.combine(slice(space.locked, space.used))

    def _confirm(self) -> bool:
        """After each block of step 6: True if it is decided whether anything is missing.

        Copies may hide in what V keeps, to which the fresh block is orthogonal: both together count. What
        lies below the values found by less than the tolerance is not missing: they may be mixtures of it.
        """
        space, p = self.space, self.filter.values(np.sort(self.values) - self.limit)
        self.fresh_steps += 1
        largest, fresh = (float(space.ritz(first)[0][0]) for first in (space.locked, self.fresh))
        verdict = largest > p[-1] * (1 + SAME) or missing(
            p, fresh, self.fresh_steps, space.block, self.dimension
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
        space.locked = max(0, min(lower, self.wanted - space.block))
        space.combine(slice(space.locked, space.used))
        self.values[space.locked :], self.residuals[space.locked :] = np.nan, np.inf

    def extras(self) -> dict[str, Any]:
        """Columns of the subspace, further passes of orthogonalisation, windows moved."""
        space = self.space
        passes = space.second_passes
        return {"subspace": space.size, "second_passes": passes, "moved_windows": self.moves}

    def save(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.save(self._arrays)

    def _configuration(self) -> NDArray[np.float64]:
        """Settings that runs have in common if they may share a checkpoint."""
        A, method, space = self.A, self.method, self.space
        sizes = [*A.shape, A.dtype.itemsize, self.wanted, space.block, space.size]
        return np.array([*sizes, method.seed, method.tolerance], float)

    def _arrays(self) -> dict[str, NDArray]:
        """All that `_restore` needs, on the host."""
        counts = [self.restarts, self.matvecs, self.moves, self.fresh, self.fresh_steps]
        flags = [self.confirming, self.confirmed]
        return {
            **self.space.saved(),
            "configuration": self._configuration(),
            "operator": self.fingerprint,
            "counts": np.array([*counts, *flags, *self.space.counts]),
            "filter": np.array(astuple(self.filter)),
            "numbers": np.array([self.scale, self.seconds]),
            "raised": np.array(self.raised),
            "values": self.values.copy(),
            "residuals": self.residuals.copy(),
            "history": np.array(self.history, float).reshape(-1, 3),
        }

    def _restore(self, arrays: dict[str, NDArray]) -> None:
        """Go on with the same bits from what `_arrays` gave.

        Raises InputError if the arrays are those of another run, or of another operator by one application of
        A, which `matvecs` does not count.
        """
        if not np.array_equal(arrays["configuration"], self._configuration()):
            raise InputError(
                "the checkpoint belongs to another run of block Lanczos (fields, precision, vectors, block, "
                "subspace, seed or tolerance differ): remove it to start anew"
            )
        present, before = fingerprint(self.A, self.method.seed), arrays["operator"].copy()
        rounding = max(1e-11, 100 * self.space.unit) * np.abs(present).max()
        if not (np.abs(present - before) <= rounding).all():
            raise InputError(
                f"the checkpoint belongs to another operator (gauge field, boundary or action differ): a "
                f"random vector has x^H A x = {present[0]:.12g}, and {before[0]:.12g} there; remove it to "
                "start anew"
            )
        counts = [int(count) for count in arrays["counts"]]
        self.restarts, self.matvecs, self.moves, self.fresh, self.fresh_steps = counts[:5]
        self.confirming, self.confirmed = (bool(flag) for flag in counts[5:7])
        self.space.restore(arrays, counts[7:])
        low, high, *degrees = arrays["filter"]  # two, or one of a checkpoint of before
        self.filter = ChebyshevFilter(float(low), float(high), *map(int, degrees))
        self.scale, self.seconds_before = (float(number) for number in arrays["numbers"])
        self.fingerprint = before
        self.values, self.residuals = arrays["values"].copy(), arrays["residuals"].copy()
        self.history = [(int(r), int(c), float(x)) for r, c, x in arrays["history"]]
        self.raised = bool(arrays.get("raised", self.moves))  # a checkpoint of before does not say
