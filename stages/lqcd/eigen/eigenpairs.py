"""Results of an eigensolver: eigenpairs, status and statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.solvers.space import Space


class EigenStatus(Enum):
    """End of a run of an eigensolver; the value says it in words, with the remedy."""

    CONVERGED = "every wanted eigenpair reached the tolerance and a fresh random block found no other"
    RESTART_LIMIT = (
        "the limit of restarts came before the tolerance: raise max_restarts, give a larger subspace or "
        "degree, or loosen the tolerance (it is relative to the largest eigenvalue)"
    )
    PRECISION = (
        "residuals no longer fall, as rounding in the precision of the vectors holds them up: loosen the "
        "tolerance (it is relative to the largest eigenvalue), or take double precision where it is single"
    )
    STALLED = (
        "residuals no longer fall above rounding, as where the wanted vectors cut a cluster of eigenvalues "
        "that the filter does not tell apart"
    )
    RESIDUAL = (
        "pairs that had converged miss the tolerance in the residuals computed at the end: check that the "
        "operator is Hermitian and the same in every application, or loosen the tolerance"
    )
    WINDOW = (
        "eigenvalues of some systems lie where those of all others end, and no filter serves both: solve "
        "such systems by themselves"
    )


@dataclass(frozen=True)
class Eigenpairs:
    """The lowest k eigenpairs of a Hermitian operator A, or of each of the S systems that it consists of.

    values: float64 ``[k]`` ascending, or ``[S, k]`` ascending to rounding. vectors: orthonormal ``[*A.shape,
    k]`` in the dtype of A, or ``[S, n, k]``. residuals: |A v - lambda v| recomputed, of the shape of values.
    matvecs: applications of A to one right-hand side. window: (low, high) and degree: those of the filter at
    the end; where the basis spans the whole space there is none, and they are the ends of the spectrum and 0.
    history: (restart, converged, largest residual of the wanted pairs) after each restart cycle. extras: of
    one system: columns of the subspace, further passes of orthogonalisation, windows that had to be moved; of
    a run that stalled, `ask_for`: a number of vectors that does not cut a cluster.
    """

    values: NDArray[np.float64]
    vectors: Array
    residuals: NDArray[np.float64]
    status: EigenStatus
    restarts: int
    matvecs: int
    seconds: float
    window: tuple[float, float]
    degree: int
    history: list[tuple[int, int, float]]
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def space(self) -> Space:
        """The span of the vectors of one system, for deflation; A is not applied to them again."""
        return Space.of_eigenpairs(self.values, self.vectors, self.residuals)


def _advice(eigenpairs: Eigenpairs) -> str:
    if "ask_for" not in eigenpairs.extras:
        return ""
    wanted = eigenpairs.values.shape[-1]
    return f": ask for {eigenpairs.extras['ask_for']} vectors instead of {wanted}"


class EigenpairsNotConverged(RuntimeError):  # noqa: N818 - it reads as the status it is
    """A run that missed its tolerance; `eigenpairs` holds what was found and says why."""

    def __init__(self, eigenpairs: Eigenpairs, limit: float) -> None:
        missed = int(np.sum(~(eigenpairs.residuals <= limit)))
        super().__init__(
            f"{missed} of {eigenpairs.values.size} eigenpairs missed the residual {limit:.3g} "
            f"(largest {np.max(eigenpairs.residuals, initial=0):.2g} after {eigenpairs.restarts} restarts): "
            f"{eigenpairs.status.value}{_advice(eigenpairs)}"
        )
        self.eigenpairs = eigenpairs
