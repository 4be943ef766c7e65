"""Block thick-restart Lanczos with a Chebyshev filter: the lowest eigenpairs of a Hermitian operator.

K. Wu, H. Simon, SIAM J. Matrix Anal. Appl. 22 (2000) 602 (thick restart); D. Calvetti, L. Reichel, D. C.
Sorensen, ETNA 2 (1994) 1 (filters); Y. Zhou, Y. Saad, SIAM J. Matrix Anal. Appl. 29 (2007) 954 (Chebyshev
filters whose window follows the spectrum found). In blocks: one pass over links and basis serves all
columns.

    1  X random, orthonormal; V empty 2  until V has no room:  append X to V, W = p(A) X, H gets its column
    V^H W, X S = W - V V^H W (thin QR) 3  Ritz vectors of H; V becomes the leading ones, in place 4  for the
    wanted ones lambda = v^H A v and |A v - lambda v|; leading ones below the tolerance are locked 5  until
    all are locked: 2, with the same X 6  if as many eigenvalues coincide as a block has columns: a fresh
    random block; 2 until `confirmation` decides 7  eigenvectors of V^H A V, and their residuals

Where V would span the whole space, step 7 alone is done, on unit vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.eigenpairs import Eigenpairs, EigenpairsNotConverged, EigenStatus
from stages.lqcd.eigen.memory import available_bytes, check_memory, needed_bytes
from stages.lqcd.eigen.rounding import check_reachable
from stages.lqcd.eigen.run import Run
from stages.lqcd.eigen.window import kept_columns, subspace_size
from stages.lqcd.lattice.errors import InputError

MOST_BLOCK = 32

Progress = Callable[[int, int, int, float], None]
"""progress(restarts, converged, wanted, largest residual of the wanted pairs), after each restart cycle."""


class Checkpoint(Protocol):
    """Where a run keeps what it needs to go on after a kill."""

    def load(self) -> dict[str, NDArray] | None:
        """What was saved last, or None."""

    def save(self, state: Callable[[], dict[str, NDArray]]) -> None:
        """Keep the arrays that `state` gives in place of those before; not calling it keeps those."""


@dataclass(frozen=True)
class BlockLanczos:
    """Frozen configuration of a run for the lowest `vectors` eigenpairs.

    block: 1 to 32 columns. tolerance: |A v - lambda v| is at most this times the largest eigenvalue.
    subspace: columns of the basis; degree, window (low, high): of the filter; by default all three are
    chosen. seed: of the random vectors.
    """

    vectors: int
    block: int = 8
    tolerance: float = 1e-10
    subspace: int | None = None
    degree: int | None = None
    window: tuple[float, float] | None = None
    max_restarts: int = 200
    seed: int = 20260

    def __post_init__(self) -> None:
        if self.vectors < 1:
            raise InputError(f"the number of eigenvectors must be at least 1, got {self.vectors}")
        if not 1 <= self.block <= MOST_BLOCK:
            raise InputError(f"the block of Lanczos vectors must be 1 to {MOST_BLOCK}, got {self.block}")
        if not 0 < self.tolerance < 1:
            raise InputError(f"tolerance must lie between 0 and 1, got {self.tolerance}")
        if self.degree is not None and self.degree < 1:
            raise InputError(f"the degree of the Chebyshev filter must be at least 1, got {self.degree}")
        if self.window is not None and not self.window[0] < self.window[1]:
            raise InputError(f"the Chebyshev window must have low < high, got {self.window}")
        if self.max_restarts < 1:
            raise InputError(f"max_restarts must be at least 1, got {self.max_restarts}")

    def solve(
        self,
        A: LinearOperator,
        xp: Any = np,
        progress: Progress | None = None,
        checkpoint: Checkpoint | None = None,
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
        run = Run(self, A, xp, self._subspace(A, self.vectors), checkpoint)
        eigenpairs = run.eigenpairs(run.iterate(progress))
        if eigenpairs.status is not EigenStatus.CONVERGED and on_failure == "raise":
            raise EigenpairsNotConverged(eigenpairs, self.tolerance * run.scale)
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
        if not A.hermitian:
            raise InputError(f"Lanczos needs a Hermitian operator, which {type(A).__name__} is not")
        check_reachable(self.tolerance, A.dtype)
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

    def kept(self, subspace: int) -> int:
        """Columns that a restart keeps."""
        return kept_columns(self.vectors, subspace, self.block)
