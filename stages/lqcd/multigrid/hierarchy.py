"""A finished multigrid hierarchy: a preconditioner for even-odd Wilson systems, and its stored form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.kernels import stream
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.multigrid.coarse_operator import CoarseOperator
from stages.lqcd.multigrid.cycle import Cycle
from stages.lqcd.multigrid.fine_operator import FineOperator
from stages.lqcd.multigrid.near_null import random_fields
from stages.lqcd.multigrid.transfer import CycleTransfer, Transfer
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
class Level:
    """A transfer and the coarse operator P^H A P that it gives; a loaded one has P for cycles alone.

    moments: of what is left to the smoothers (`stages.lqcd.multigrid.fitted`), or None.
    """

    transfer: Transfer | CycleTransfer
    operator: CoarseOperator
    moments: NDArray[np.complex128] | None = None


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """About the inverse of `WilsonSchur(M)`, in complex64: a preconditioner for flexible solvers.

    levels: from the finest on. attempts: the setups that were built, the last one is this.
    seconds: wall time of the setup.
    """

    M: WilsonOperator
    levels: tuple[Level, ...]
    cycle: Cycle = field(repr=False)
    attempts: tuple[Attempt, ...]
    seconds: float

    hermitian = False
    positive_definite = False

    @property
    def system(self) -> WilsonSchur:
        """S of M in the precision of M: S x_e = S.prepare(b), then S.reconstruct(x_e, b)."""
        return WilsonSchur(self.M)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.system.shape

    @property
    def dtype(self) -> np.dtype:
        return self.cycle.dtype

    @property
    def rate(self) -> float:
        """Factor by which a cycle reduces a random residual, inside GCR."""
        return self.attempts[-1].rate

    def apply(self, x: Array, out: Array | None = None) -> Array:
        """About S^-1 x, one cycle; without `out` the result may be overwritten by the next application."""
        y = self._replayed(x)
        if out is None:
            return y
        assign(out, y)
        return out

    @cached_property
    def _replayed(self) -> Callable[[Array], Array]:
        """A cycle is hundreds of short kernels: a device would wait for the host that starts them."""
        return stream.replayed(self.cycle.apply, self.M.xp)

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

    def arrays(self) -> dict[str, Any]:
        """Arrays to be stored, on the host: vectors_0, diagonal_0, links_0, vectors_1, ...

        Raises InputError for a hierarchy that was loaded, which has them no longer.
        """
        stored: dict[str, Any] = {}
        for number, level in enumerate(self.levels):
            if isinstance(level.transfer, CycleTransfer):
                raise InputError("a hierarchy that was loaded keeps no vectors: store the one of its setup")
            stored[f"vectors_{number}"] = as_numpy(level.transfer.vectors)
            stored[f"diagonal_{number}"] = as_numpy(level.operator.diagonal)
            stored[f"links_{number}"] = as_numpy(level.operator.links)
        return stored

    def metadata(self) -> dict[str, Any]:
        """Numbers that belong to the stored arrays, for JSON."""
        return {
            "format": FORMAT,
            "extents": list(self.M.lattice.extents),
            "aggregates": [list(level.transfer.aggregates.extents) for level in self.levels],
            "fingerprint": fingerprint(self.M),
            "attempts": [[attempt.seed, attempt.rate] for attempt in self.attempts],
            "moments": [_plain(level.moments) for level in self.levels],
            "seconds": self.seconds,
        }


def fingerprint(M: WilsonOperator) -> list[float]:
    """x^H M x / |x|^2 of a fixed random x in double, (Re, Im): another mass or gauge field gives another."""
    wide = M.astype(np.complex128)
    x = random_fields((M.lattice.volume, COMPONENTS, 1), np.complex128, M.links.links, FINGERPRINT_SEED)
    y = FineOperator(wide).apply(x)
    norm = float((x.real**2 + x.imag**2).sum())
    value = complex((x.conj() * y).sum()) / norm
    return [value.real, value.imag]


def check_stored(metadata: dict[str, Any], M: WilsonOperator) -> None:
    """Raise InputError unless the stored hierarchy is one of M."""
    if metadata["format"] != FORMAT:
        raise InputError(
            f"a stored multigrid setup has format {FORMAT}, got {metadata['format']}: build it again"
        )
    if tuple(metadata["extents"]) != M.lattice.extents:
        extents = "x".join(map(str, metadata["extents"]))
        raise InputError(f"the stored multigrid setup is one of a {extents} lattice, not of {M.lattice}")
    distance = abs(complex(*metadata["fingerprint"]) - complex(*fingerprint(M)))
    if not distance < FINGERPRINT_TOLERANCE:
        raise InputError(
            "the stored multigrid setup is one of another operator or gauge field (x^H M x / |x|^2 differs "
            f"by {distance:.2g}): give the links, boundary, csw and mass it was made with, or build it again"
        )


def _plain(moments: NDArray[np.complex128] | None) -> list[list[list[float]]] | None:
    """Rows of pairs (Re, Im), for JSON."""
    return None if moments is None else np.stack([moments.real, moments.imag], axis=-1).tolist()


def load_levels(
    arrays: dict[str, Any], metadata: dict[str, Any], aggregates: list[Any], like: Array
) -> tuple[Level, ...]:
    """The levels of stored arrays, where `like` lives; aggregates: those of each level."""
    levels = []
    for number, (blocks, plain) in enumerate(zip(aggregates, metadata["moments"], strict=True)):
        vectors, diagonal, links = (
            to_device_like(np.ascontiguousarray(arrays[f"{name}_{number}"]), like)
            for name in ("vectors", "diagonal", "links")
        )
        operator = CoarseOperator(blocks.coarse, diagonal, links)
        moments = None if plain is None else np.array(plain).view(complex)[..., 0]
        levels.append(Level(Transfer(blocks, vectors).for_cycles(), operator, moments))
    return tuple(levels)
