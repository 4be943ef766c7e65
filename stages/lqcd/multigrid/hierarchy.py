"""A multigrid hierarchy: its levels, the cycle that makes it a preconditioner, and its stored form.

    1  e = A_c^-1 P^H (residual of A)            by the grid below, to a loose tolerance (K-cycle)
    2  x = P e,  r = b - S x                     on the sites of S
    3  x += smoothed 0 for the residual r

as in arXiv:1612.07873 (section III) and arXiv:1005.3043. A coarse grid is solved by GCR with the cycle of
that grid as its preconditioner, so that a coarse problem that needs more work gets it (K-cycle: Notay and
Vassilevski, Numer. Linear Algebra Appl. 15 (2008) 473).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import coarse_dslash, stream
from stages.lqcd.kernels.coarse_dslash import PackedCoarseLinks
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, empty_rows, field_like, zeros_like
from stages.lqcd.multigrid.aggregates import Aggregates, Prolongation, Transfer, random_fields
from stages.lqcd.multigrid.coarse_operator import CoarseOperator, LevelOperator, coarse_operator
from stages.lqcd.multigrid.smoothers import Smoother, adjoint, fitted
from stages.lqcd.solvers.even_odd import even_odd_solve
from stages.lqcd.solvers.gcr import CYCLE_RESTART, MultigridGCR, gcr_correction

DIRECT_UNKNOWNS = 1024
"""Largest system that is inverted: an inverse costs less to apply than two steps of GCR up to here."""

Metadata = Mapping[str, Any]
"""Numbers that belong to stored arrays, as JSON has them."""

FORMAT = 2
FINGERPRINT_SEED = 0x5EED
FINGERPRINT_TOLERANCE = 1e-10
"""Of fingerprints: far above rounding, far below what one changed link of 1e7 does."""


@dataclass(frozen=True, eq=False)
class Level:
    """A grid that has another one below: its operator A, with S, the transfer P to that grid, and a smoother.

    steps, tolerance: of GCR on the grid below in every cycle. prolongation: P with its vectors, which a
    loaded level has no longer. moments: of what is left to the smoother (`Recorder.moments`), or None.
    """

    A: LevelOperator
    transfer: Transfer
    smoother: Smoother
    steps: int
    tolerance: float
    prolongation: Prolongation | None = None
    moments: NDArray[np.complex128] | None = None

    def fitted(self, moments: NDArray[np.complex128] | None) -> Level:
        """This level with a smoother that is fitted to the moments, where there are any."""
        return replace(self, smoother=fitted(self.smoother, moments), moments=moments)


@dataclass(frozen=True, eq=False)
class Coarsest:
    """The coarsest grid: its operator, and the packed inverse of a small S, or None where GCR solves it."""

    A: CoarseOperator
    steps: int
    tolerance: float
    inverse: PackedCoarseLinks | None

    def solve(self, b: Array) -> Array:
        """About A^-1 b, on the whole grid; b is kept."""
        return even_odd_solve(self.A, b, self._corrected)

    def _corrected(self, rhs: Array) -> Array:
        """About S^-1 rhs."""
        if self.inverse is None:
            return gcr_correction(self.A.operator, rhs, self.steps, self.tolerance)
        return coarse_dslash.coarse_dslash(self.inverse, rhs, field_like(rhs))


@dataclass(frozen=True, eq=False)
class Cycle:
    """A preconditioner of S on the first of the levels, in its precision; as little linear as GCR."""

    levels: tuple[Level, ...]
    coarsest: Coarsest

    @property
    def dtype(self) -> np.dtype:
        return self.levels[0].A.dtype

    def apply(self, x: Array) -> Array:
        """About S^-1 x."""
        level, y = self.levels[0], zeros_like(x)
        self._add_coarse(level.A.defect(x), y)
        level.smoother.improve(level.A.operator, x, y)
        return y

    def _add_coarse(self, defect: Array, y: Array) -> None:
        """``y += P A_c^-1 P^H defect``."""
        transfer = self.levels[0].transfer
        transfer.add_prolonged(self.solve_below(transfer.restrict(defect)), y)

    def solve_below(self, b: Array) -> Array:
        """About A_c^-1 b, on the whole grid below; b is kept."""
        level, cycle = self.levels[0], self.below
        if cycle is None:
            return self.coarsest.solve(b)
        A = cycle.levels[0].A
        S = A.operator
        return even_odd_solve(A, b, lambda rhs: gcr_correction(S, rhs, level.steps, level.tolerance, cycle))

    @property
    def below(self) -> Cycle | None:
        """The cycle of the grid below, None for the coarsest one."""
        return Cycle(self.levels[1:], self.coarsest) if len(self.levels) > 1 else None

    def with_levels(self, levels: Iterable[Level]) -> Cycle:
        return Cycle(tuple(levels), self.coarsest)

    def with_smoothers(self, smoothers: Sequence[Smoother]) -> Cycle:
        """This cycle with other smoothers, those of each level."""
        pairs = zip(self.levels, smoothers, strict=True)
        return self.with_levels(replace(level, smoother=smoother) for level, smoother in pairs)


def coarsest(A: CoarseOperator, steps: int, tolerance: float) -> Coarsest:
    """The inverse of a small system, computed in double, NaN for a singular one; GCR for a larger one."""
    sites, n = A.operator.shape
    if sites * n > DIRECT_UNKNOWNS:
        return Coarsest(A, steps, tolerance, None)
    inverse = coarse_dslash.inverse(A.dense()).reshape(sites, n, sites, n).swapaxes(1, 2)
    everywhere = np.tile(np.arange(sites, dtype=np.int32), (sites, 1))
    links = empty_rows(inverse, inverse.shape, A.dtype, 0)
    assign(links, inverse)
    return Coarsest(A, steps, tolerance, coarse_dslash.pack_half(links, everywhere))


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

    fine: LevelOperator
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
        precision: str = "double-single",
    ) -> MultigridGCR:
        """GCR preconditioned by this hierarchy, with residuals in the precision of b.

        precision: 'double-half' keeps directions in 16 bits.
        """
        return MultigridGCR(tolerance, max_iterations, precision, restart=restart, preconditioner=self)

    def twist_scaled(self, factor: float) -> Hierarchy:
        """That of the operator with its twisted mass times a factor, -1 for the other flavour.

        Its near-null vectors are these: local matrices and roots of smoothers differ. The rate is this one's.
        """
        levels = [replace(level, A=level.A.twist_scaled(factor)) for level in self.cycle.levels]
        if factor < 0:
            levels = [replace(level, smoother=adjoint(level.smoother)) for level in levels]
        last = self.cycle.coarsest
        below = coarsest(last.A.twist_scaled(factor), last.steps, last.tolerance)
        return replace(self, fine=self.fine.twist_scaled(factor), cycle=Cycle(tuple(levels), below))

    def arrays(self) -> dict[str, NDArray]:
        """Arrays to be stored, on the host: vectors_0, diagonal_0, links_0, vectors_1, ...

        Those of a level are its near-null vectors and the coarse operator that they give. Raises InputError
        for a hierarchy that was loaded, which has them no longer.
        """
        levels = self.cycle.levels
        coarse = [*(cast(CoarseOperator, level.A) for level in levels[1:]), self.cycle.coarsest.A]
        stored: dict[str, NDArray] = {}
        for number, (level, A) in enumerate(zip(levels, coarse, strict=True)):
            if level.prolongation is None:
                raise InputError("a hierarchy that was loaded keeps no vectors: store the one of its setup")
            stored[f"vectors_{number}"] = as_numpy(level.prolongation.vectors)
            stored[f"diagonal_{number}"] = as_numpy(A.diagonal)
            stored[f"links_{number}"] = as_numpy(A.links)
        return stored

    def metadata(self) -> Metadata:
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


def fingerprint(fine: LevelOperator) -> list[float]:
    """x^H A x / |x|^2 of a fixed random x in double, (Re, Im): another mass or gauge field gives another."""
    A = fine.astype(np.complex128)
    x = random_fields((A.grid.sites, A.components, 1), np.complex128, A.links, FINGERPRINT_SEED)
    y = A.apply(x)
    norm = float((x.real**2 + x.imag**2).sum())
    value = complex((x.conj() * y).sum()) / norm
    return [value.real, value.imag]


def check_stored(metadata: Metadata, fine: LevelOperator) -> None:
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
