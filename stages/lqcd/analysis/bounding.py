"""The tail of G(t) from bounds, where the data have no signal left.

Connected (arXiv:1512.09054; arXiv:1808.09236): beyond n_c a sum of positive exponentials is between
G(n_c) exp(-E_eff (n - n_c)), with the effective energy at n_c, and G(n_c) exp(-E_0 (n - n_c)), with the
lowest energy, two pions in the box. The slices n <= n_c are summed as they are. Staggered correlators
oscillate: there G(n_c) is S / [(1 + cosh E) / 2], S(n) = [G(n-1) + 2 G(n) + G(n+1)] / 4, with each bound's E.
Disconnected: G_l / 10 + G_s + G_disc and -G_disc are positive at large t, so that
-(G_l / 10 + G_s) <= G_disc <= 0, with G_l = 5/9 C_l and G_s = 1/9 C_s, each with its decay from n_c on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stages.base.errors import InputError, check_whole
from stages.lqcd.analysis.effective_mass import without_oscillation
from stages.lqcd.analysis.hvp_kernel import Array
from stages.lqcd.analysis.hvp_sum import fold
from stages.lqcd.analysis.scale import Measured


class Bounds(NamedTuple):
    """A correlator ``[..., n]``, n = 0 ... last, with its tail from below and from above."""

    lower: Array
    upper: Array

    @property
    def middle(self) -> Array:
        """Their mean."""
        return (self.lower + self.upper) / 2


@dataclass(frozen=True)
class Tail:
    """How tails are bounded, all in lattice units.

    energy: of two pions in the box, the lowest of the light part. strange_energy: of the lowest strange
    vector, for the disconnected part. slice, disconnected_slice: n_c; by default the first where half the
    distance of the bounds is below the statistical error. oscillating: as staggered correlators do.
    bounded: parts that have one.
    steps: slices back from n_c + 1 over which E_eff is taken; more make less noise and a wider bound.
    Raises InputError for energies that are not positive.
    """

    energy: float
    strange_energy: float | None = None
    slice: int | None = None
    disconnected_slice: int | None = None
    oscillating: bool = True
    steps: int = 4
    bounded: tuple[str, ...] = ("light", "disconnected")

    def __post_init__(self) -> None:
        energies = {"energy": self.energy}
        energies |= {} if self.strange_energy is None else {"strange_energy": self.strange_energy}
        for name, energy in energies.items():
            if Measured(energy, 0.0, f"{name} of a tail").value <= 0:
                raise InputError(f"{name} of a tail must be positive, got {energy}")
        for name in ("slice", "disconnected_slice", "steps"):
            if (number := getattr(self, name)) is not None:
                check_whole(f"{name} of a tail", number, 1)

    def connected(self, correlator: ArrayLike, cut: int, last: int) -> Bounds:
        """Bounds of G ``[..., N]`` beyond n_c = `cut`, ``[..., last + 1]``; `last` may exceed N/2.

        Where noise makes E_eff less than E_0 the bounds are equal; without a signal the lower one is 0.
        """
        smooth = self._smooth(correlator, cut, last)
        here, first, after = (smooth[..., n] for n in (cut, cut + 1 - self.steps, cut + 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            effective = np.where((first > 0) & (after > 0), np.log(first / after) / self.steps, np.inf)
        tails = (self._decay(here, e, last - cut) for e in (np.maximum(effective, self.energy), self.energy))
        return Bounds(*(_continued(correlator, cut, tail) for tail in tails))

    def disconnected(
        self, correlator: ArrayLike, light: ArrayLike, strange: ArrayLike, cut: int, last: int
    ) -> Bounds:
        """Bounds of G_disc ``[..., N]`` beyond `cut`, from G_l and G_s ``[..., N]`` with their charges."""
        if self.strange_energy is None:
            raise InputError("the disconnected tail needs strange_energy, of the lowest strange vector state")
        below = [
            self._decay(share * self._smooth(part, cut, last)[..., cut], energy, last - cut)
            for part, share, energy in ((light, 0.1, self.energy), (strange, 1.0, self.strange_energy))
        ]
        lower = -(below[0] + below[1])
        return Bounds(*(_continued(correlator, cut, tail) for tail in (lower, np.zeros_like(lower))))

    def _smooth(self, correlator: ArrayLike, cut: int, last: int) -> Array:
        folded = fold(without_oscillation(correlator) if self.oscillating else correlator)
        end = min(folded.shape[-1] - 2, last)
        if not self.steps <= cut <= end:
            raise InputError(f"a tail must begin at a slice from steps = {self.steps} to {end}, got {cut}")
        return folded

    def _decay(self, start: Array, energy: Array | float, steps: int) -> Array:
        """From `start`, or 0 if it is negative, with exp(-E) per step, ``[..., step]``."""
        q = np.exp(-np.asarray(energy))[..., None]
        factor = 4 * q / (1 + q) ** 2 if self.oscillating else 1.0  # 1 / [(1 + cosh E) / 2]
        return np.maximum(start, 0)[..., None] * factor * q ** np.arange(1, steps + 1)


def _continued(correlator: ArrayLike, cut: int, tail: Array) -> Array:
    return np.concatenate([fold(correlator)[..., : cut + 1], tail], axis=-1)
