"""The state of a run of block Lanczos, and the arrays from which it goes on with the same bits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.eigen.chebyshev import ChebyshevFilter
from stages.lqcd.eigen.subspace import Subspace
from stages.lqcd.kernels.fields import assign, contiguous
from stages.lqcd.kernels.transfer import copy_to_host, to_device

COLUMNS = 16
"""Vectors that are copied from a device together."""


@dataclass
class RunState:
    """All that a run changes.

    scale: the largest eigenvalue in modulus. fingerprint: that of the operator. values, residuals: of the
    wanted pairs. history: (restart, converged, largest residual) of each cycle. moves: windows moved; raised:
    whether one began higher than before. fresh, fresh_steps, confirming, confirmed: of the search for missed
    eigenvalues. seconds: of runs before this.
    """

    space: Subspace
    filter: ChebyshevFilter
    scale: float
    fingerprint: NDArray[np.float64]
    values: NDArray[np.float64]
    residuals: NDArray[np.float64]
    history: list[tuple[int, int, float]] = field(default_factory=list)
    restarts: int = 0
    matvecs: int = 0
    moves: int = 0
    raised: bool = False
    fresh: int = 0
    fresh_steps: int = 0
    confirming: bool = False
    confirmed: bool = False
    seconds: float = 0.0

    def arrays(self, configuration: NDArray[np.float64], seconds: float) -> dict[str, NDArray]:
        """The arrays that `restored` needs, on the host; seconds: of all runs so far."""
        space = self.space
        vectors = {
            f"vectors_{first}": copy_to_host(
                contiguous(space.V[..., first : min(first + COLUMNS, space.used)])
            )
            for first in range(0, space.used, COLUMNS)
        }
        counts = [self.restarts, self.matvecs, self.moves, self.fresh, self.fresh_steps]
        flags = [self.confirming, self.confirmed]
        of_space = [space.locked, space.used, space.draws, space.passes, space.second_passes]
        return {
            **vectors,
            "configuration": configuration,
            "operator": self.fingerprint,
            "next_block": np.array(copy_to_host(space.X)),
            "projected": space.H[: space.used, : space.used].copy(),
            "lost": space.E[: space.used, : space.used].copy(),
            "block_lost": space.loss.copy(),
            "counts": np.array([*counts, *flags, *of_space]),
            "filter": np.array(list(asdict(self.filter).values())),
            "numbers": np.array([self.scale, seconds]),
            "raised": np.array(self.raised),
            "values": self.values.copy(),
            "residuals": self.residuals.copy(),
            "history": np.array(self.history, float).reshape(-1, 3),
        }


def restored(
    arrays: dict[str, NDArray],
    space: Subspace,
    configuration: NDArray[np.float64],
    fingerprint: NDArray[np.float64],
) -> RunState:
    """The state of a run with these settings, in this space; fingerprint: of the operator that is there now.

    Raises InputError if the arrays are those of another run or operator.
    """
    if not np.array_equal(arrays["configuration"], configuration):
        raise InputError(
            "the checkpoint belongs to another run of block Lanczos (fields, precision, vectors, block, "
            "subspace, seed or tolerance differ): remove it to start anew"
        )
    before = arrays["operator"].copy()
    rounding = max(1e-11, 100 * space.unit) * np.abs(fingerprint).max()
    if not (np.abs(fingerprint - before) <= rounding).all():
        raise InputError(
            f"the checkpoint belongs to another operator (gauge field, boundary or action differ): a random "
            f"vector has x^H A x = {fingerprint[0]:.12g}, and {before[0]:.12g} there; remove it to "
            "start anew"
        )
    counts = [int(count) for count in arrays["counts"]]
    restarts, matvecs, moves, fresh, fresh_steps, confirming, confirmed = counts[:7]
    _fill(space, arrays, counts[7:])
    low, high, degree = arrays["filter"]
    scale, seconds = (float(number) for number in arrays["numbers"])
    return RunState(
        space,
        ChebyshevFilter(float(low), float(high), int(degree)),
        scale,
        before,
        arrays["values"].copy(),
        arrays["residuals"].copy(),
        [(int(r), int(c), float(x)) for r, c, x in arrays["history"]],
        restarts,
        matvecs,
        moves,
        bool(arrays.get("raised", moves)),  # a checkpoint of before does not say
        fresh,
        fresh_steps,
        bool(confirming),
        bool(confirmed),
        seconds,
    )


def _fill(space: Subspace, arrays: dict[str, NDArray], counts: list[int]) -> None:
    put = (lambda array: array) if space.xp is np else to_device
    space.locked, space.used, space.draws, space.passes, space.second_passes = counts
    for first in range(0, space.used, COLUMNS):
        assign(space.V[..., first : min(first + COLUMNS, space.used)], put(arrays[f"vectors_{first}"]))
    assign(space.X, put(arrays["next_block"]))
    space.H[: space.used, : space.used] = arrays["projected"]
    space.E[: space.used, : space.used] = arrays["lost"]
    space.loss = arrays["block_lost"].copy()
