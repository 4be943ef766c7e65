"""A finished multigrid hierarchy: a preconditioner for even-odd systems, and its stored form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import stream
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.multigrid.coarse_operator import CoarseOperator, FineOperator, coarse_operator
from stages.lqcd.multigrid.cycle import Cycle
from stages.lqcd.multigrid.grid import Aggregates, random_fields
from stages.lqcd.multigrid.transfer import Prolongation, Transfer
from stages.lqcd.solvers.gcr import CYCLE_RESTART, MultigridGCR

FORMAT = 2
FINGERPRINT_SEED = 0x5EED
FINGERPRINT_TOLERANCE = 1e-10
"""Of fingerprints: far above rounding, far below what one changed link of 1e7 does."""


@dataclass(frozen=True)
class Attempt:
    """A setup that was built: the seed of its vectors and its factor per cycle on a random residual."""

    seed: int
    rate: float


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """About the inverse of S, in complex64: a preconditioner for flexible solvers.

    fine: the operator, in the precision of the solves. cycle: with all levels. attempts: the setups that were
    built, the last one is this. seconds: wall time of the setup.
    """

    fine: FineOperator
    cycle: Cycle = field(repr=False)
    attempts: tuple[Attempt, ...]
    seconds: float

    @property
    def system(self) -> Any:
        """S of the operator in its precision: S x_e = S.prepare(b), then S.reconstruct(x_e, b)."""
        return self.fine.operator

    @property
    def dtype(self) -> np.dtype:
        return self.cycle.dtype

    @property
    def rate(self) -> float:
        """Factor by which a cycle reduces a random residual, inside GCR."""
        return self.attempts[-1].rate

    def apply(self, x: Array) -> Array:
        """About S^-1 x, one cycle; the result may be overwritten by the next application."""
        return self._replayed(x)

    @cached_property
    def _replayed(self) -> Callable[[Array], Array]:
        """A cycle is hundreds of short kernels: a device would wait for the host that starts them."""
        return stream.replayed(self.cycle.apply, self.fine.operator.xp)

    def solver(
        self,
        tolerance: float = 1e-10,
        max_iterations: int = 200,
        restart: int = CYCLE_RESTART,
        inner: str = "single",
    ) -> MultigridGCR:
        """GCR preconditioned by this hierarchy, with residuals in the precision of b.

        inner: precision of its directions, 'single' or 'half'.
        """
        return MultigridGCR(tolerance, max_iterations, inner, restart=restart, preconditioner=self)

    def arrays(self) -> dict[str, NDArray]:
        """Arrays to be stored, on the host: vectors_0, diagonal_0, links_0, vectors_1, ...

        Those of a level are its near-null vectors and the coarse operator that they give. Raises InputError
        for a hierarchy that was loaded, which has them no longer.
        """
        levels = self.cycle.levels
        coarse: list[Any] = [*(level.A for level in levels[1:]), self.cycle.coarsest.A]
        stored: dict[str, NDArray] = {}
        for number, (level, A) in enumerate(zip(levels, coarse, strict=True)):
            if level.prolongation is None:
                raise InputError("a hierarchy that was loaded keeps no vectors: store the one of its setup")
            stored[f"vectors_{number}"] = as_numpy(level.prolongation.vectors)
            stored[f"diagonal_{number}"] = as_numpy(A.diagonal)
            stored[f"links_{number}"] = as_numpy(A.links)
        return stored

    def metadata(self) -> dict[str, Any]:
        """Numbers that belong to the stored arrays, for JSON."""
        levels = self.cycle.levels
        return {
            "format": FORMAT,
            "extents": list(self.fine.grid.extents),
            "aggregates": [list(level.transfer.aggregates.extents) for level in levels],
            "fingerprint": fingerprint(self.fine),
            "attempts": [[attempt.seed, attempt.rate] for attempt in self.attempts],
            "moments": [_plain(level.moments) for level in levels],
            "seconds": self.seconds,
        }


def fingerprint(fine: FineOperator) -> list[float]:
    """x^H A x / |x|^2 of a fixed random x in double, (Re, Im): another mass or gauge field gives another."""
    A = fine.astype(np.complex128)
    x = random_fields((A.grid.sites, A.components, 1), np.complex128, A.links, FINGERPRINT_SEED)
    y = A.apply(x)
    norm = float((x.real**2 + x.imag**2).sum())
    value = complex((x.conj() * y).sum()) / norm
    return [value.real, value.imag]


def check_stored(metadata: Mapping[str, Any], fine: FineOperator) -> None:
    """Raise InputError unless the stored hierarchy is one of the operator."""
    if metadata["format"] != FORMAT:
        raise InputError(
            f"a stored multigrid setup has format {FORMAT}, got {metadata['format']}: build it again"
        )
    if tuple(metadata["extents"]) != fine.grid.extents:
        extents = "x".join(map(str, metadata["extents"]))
        raise InputError(f"the stored multigrid setup is one of a {extents} lattice, not of {fine.grid}")
    distance = abs(complex(*metadata["fingerprint"]) - complex(*fingerprint(fine)))
    if not distance < FINGERPRINT_TOLERANCE:
        raise InputError(
            "the stored multigrid setup is one of another operator or gauge field (x^H M x / |x|^2 differs "
            f"by {distance:.2g}): give the links, boundary, csw and mass it was made with, or build it again"
        )


def _plain(moments: NDArray[np.complex128] | None) -> list[list[list[float]]] | None:
    """Rows of pairs (Re, Im), for JSON."""
    return None if moments is None else np.stack([moments.real, moments.imag], axis=-1).tolist()


def load_level(
    arrays: Mapping[str, NDArray], number: int, blocks: Aggregates, like: Array
) -> tuple[Transfer, CoarseOperator]:
    """P of a stored level and the coarse operator that it gives, where `like` lives."""
    vectors, diagonal, links = (
        to_device_like(np.ascontiguousarray(arrays[f"{name}_{number}"]), like)
        for name in ("vectors", "diagonal", "links")
    )
    transfer = Prolongation(blocks, vectors).for_cycles().without_vectors()
    return transfer, coarse_operator(blocks.coarse, diagonal, links)


def load_moments(plain: list[list[list[float]]] | None) -> NDArray[np.complex128] | None:
    """Moments of a level from their stored form."""
    return None if plain is None else np.array(plain).view(complex)[..., 0]
