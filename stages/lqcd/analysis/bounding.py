"""The tail of G(t) from bounds, where the data have no signal left.

Connected (arXiv:1512.09054; arXiv:1808.09236, section III): beyond t_c a sum of positive exponentials lies
between G(t_c) exp(-E_eff (t - t_c)), with its effective energy at t_c, and G(t_c) exp(-E_0 (t - t_c)), with
the lowest energy, two pions in the box. Staggered correlators oscillate, so that the bounds are those of

    F(n) = S(n) / [(1 + cosh E) / 2],    S(n) = [G(n-1) + 2 G(n) + G(n+1)] / 4,

each with the E of its own decay. The slices n <= n_c are summed as they are.
Disconnected: the isoscalar G_l / 10 + G_s + G_disc and -G_disc are positive at large t, so that
-(G_l / 10 + G_s) <= G_disc <= 0, with G_l = 5/9 C_l and G_s = 1/9 C_s, each with its decay from t_c on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.analysis.effective_mass import without_oscillation
from stages.lqcd.analysis.hvp_sum import fold

Array = NDArray[np.float64]


class Bounds(NamedTuple):
    """A correlator ``[..., n]``, n = 0 ... last, with its tail bounded from below and from above."""

    lower: Array
    upper: Array

    @property
    def middle(self) -> Array:
        """Their mean."""
        return (self.lower + self.upper) / 2


@dataclass(frozen=True)
class Tail:
    """How tails are bounded.

    energy: a E_0, the lowest energy of the light connected correlator, two pions in the box.
    strange_energy: a E of the lowest strange vector state, for the disconnected part.
    slice, disconnected_slice: n_c; None takes the first where the bounds differ by less than the statistical
        error of their mean.
    oscillating: whether the correlators have the opposite-parity partners of staggered quarks.

    Raises InputError for energies that are not positive.
    """

    energy: float
    strange_energy: float | None = None
    slice: int | None = None
    disconnected_slice: int | None = None
    oscillating: bool = True

    def __post_init__(self) -> None:
        for name, energy in (("energy", self.energy), ("strange_energy", self.strange_energy)):
            if energy is not None and not energy > 0:
                raise InputError(f"{name} of a tail must be positive, in lattice units, got {energy!r}")

    def connected(self, correlator: ArrayLike, cut: int, last: int) -> Bounds:
        """Bounds of G ``[..., N]`` beyond slice n_c = `cut`, ``[..., last + 1]``; `last` may exceed N/2.

        Where noise makes E_eff less than E_0 the bounds coincide; where G has no signal the lower one is 0.
        """
        folded = self._checked(correlator, cut)
        smooth = fold(without_oscillation(correlator)) if self.oscillating else folded
        here, after = smooth[..., cut], smooth[..., cut + 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            effective = np.where((here > 0) & (after > 0), np.log(here / after), np.inf)
        effective = np.maximum(effective, self.energy)
        start = np.maximum(here, 0)
        steps = np.arange(1, last - cut + 1)
        return Bounds(
            _continued(folded, cut, self._decay(start, effective, steps)),
            _continued(folded, cut, self._decay(start, np.full_like(start, self.energy), steps)),
        )

    def disconnected(
        self, correlator: ArrayLike, light: ArrayLike, strange: ArrayLike, cut: int, last: int
    ) -> Bounds:
        """Bounds of G_disc ``[..., N]`` beyond `cut`, from G_l and G_s ``[..., N]`` with their charges."""
        if self.strange_energy is None:
            raise InputError("the disconnected tail needs strange_energy, of the lowest strange vector state")
        folded = self._checked(correlator, cut)
        steps = np.arange(1, last - cut + 1)
        lower = np.zeros((*folded.shape[:-1], len(steps)))
        for part, share, energy in ((light, 0.1, self.energy), (strange, 1.0, self.strange_energy)):
            smooth = fold(without_oscillation(part) if self.oscillating else part)[..., cut]
            start = np.maximum(smooth, 0)
            lower = lower - share * self._decay(start, np.full_like(start, energy), steps)
        return Bounds(_continued(folded, cut, lower), _continued(folded, cut, np.zeros_like(lower)))

    def _decay(self, start: Array, energy: Array, steps: Array) -> Array:
        """start exp(-E step) ``[..., step]``, divided by (1 + cosh E) / 2 if `start` is of S."""
        decay = np.exp(-energy[..., None] * steps)
        if self.oscillating:
            q = np.exp(-energy)  # 1 / [(1 + cosh E) / 2] = 4 q / (1 + q)^2, which is 0 for E = inf
            decay = decay * (4 * q / (1 + q) ** 2)[..., None]
        return start[..., None] * decay

    def _checked(self, correlator: ArrayLike, cut: int) -> Array:
        folded = fold(correlator)
        if not 1 <= cut <= folded.shape[-1] - 2:
            raise InputError(f"the tail must begin at a slice from 1 to {folded.shape[-1] - 2}, got {cut}")
        return folded


def _continued(folded: Array, cut: int, tail: Array) -> Array:
    return np.concatenate([folded[..., : cut + 1], tail], axis=-1)
