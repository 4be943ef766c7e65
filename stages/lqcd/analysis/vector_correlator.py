"""The vector correlator G(t) from the parts that are measured: flavours, disconnected, strong isospin.

    G(n) = (1 / L^3) [5/9 C_l + 1/9 C_s + 4/9 C_c + (1/9) (1/4) JJ_{l-s}],    each part times its Z_V^2

C is the slice trace of staggered quarks, Tr[P O G P O G] with M = 2 m + D, without volume, charge or taste
factors, averaged over the three directions; JJ the product of MILC's one-link loops, light - strange,
(1/3) sum_k (1/T) sum_t0 J_k(t0 + t) J_k(t0). No factor 4 is needed: that of the propagator, (2)^2, cancels
that of the tastes. Strong isospin breaking adds 4/9 C_u + 1/9 C_d - 5/9 C_l.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError, suggestion
from stages.lqcd.analysis.jackknife import jackknife_error, jackknife_samples
from stages.lqcd.analysis.scale import Measured

CHARGES = {
    "light": 5 / 9,
    "strange": 1 / 9,
    "charm": 4 / 9,
    "disconnected": 1 / 36,
    "up": 4 / 9,
    "down": 1 / 9,
    "minus_light": -5 / 9,
}
"""What C or JJ of a part is multiplied with; up + down + minus_light is the strong-isospin correction."""
CURRENTS = ("conserved", "one_link", "local")

Current = Literal["conserved", "one_link", "local"]
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class VectorCorrelator:
    """One part of G(t) as it was measured.

    part: a name of `CHARGES`.
    data: C(t) or JJ(t) ``[config, N]`` in lattice units, all N slices, source time shifted to zero, mean over
        directions.
    labels: of the configurations, each a stream and a number ('a.1020').
    volume: L^3, spatial sites.
    current: whose correlator it is. z_v: the current's Z_V with its error; required but for `conserved`,
        where it is 1.

    Raises InputError for an unknown part or current, a missing Z_V, and data of another shape.
    """

    part: str
    data: ArrayLike
    labels: Sequence[str | int]
    volume: int
    current: Current
    z_v: Measured | None = None

    def __post_init__(self) -> None:
        for what, name, known in (("part", self.part, CHARGES), ("current", self.current, CURRENTS)):
            if name not in known:
                raise InputError(f"unknown {what} {name!r} of a vector correlator{suggestion(name, known)}")
        shape = np.shape(self.data)
        if len(shape) != 2 or shape[1] < 4:
            raise InputError(f"{self.part}: data are [config, time] with 4 slices or more, got {list(shape)}")
        if not self.volume > 0:
            raise InputError(f"{self.part}: the volume is a number of spatial sites, got {self.volume!r}")
        if self.current == "conserved" and self.z_v is not None:
            raise InputError(f"{self.part}: the conserved current has Z_V = 1, leave z_v = {self.z_v} out")
        if self.current != "conserved" and not isinstance(self.z_v, Measured):
            raise InputError(
                f"{self.part}: the {self.current} current needs its Z_V with an error, "
                f"z_v=Measured(0.99, 0.01, 'Z_V of ...'), got {self.z_v!r}: no correlator is added without it"
            )

    @property
    def renormalisation(self) -> float:
        """Z_V^2."""
        return 1.0 if self.z_v is None else self.z_v.value**2

    @property
    def factor(self) -> float:
        """Charges times Z_V^2 / L^3: G(t) is this times the data."""
        return CHARGES[self.part] * self.renormalisation / self.volume


def z_v_from_ratio(
    conserved: ArrayLike, other: ArrayLike, slices: tuple[int, int], name: str, error: float | None = None
) -> Measured:
    """Z_V of a current, sqrt(C_conserved / C_other), mean over the slices first ... last.

    conserved, other: C(t) ``[config, N]`` of the same configurations, mass and flavour. error: stated; by
    default the jackknife's. For staggered quarks the range covers even and odd slices alike.
    Raises InputError for shapes that differ and for a ratio that is not positive.
    """
    above, below = np.asarray(conserved, float), np.asarray(other, float)
    first, last = slices
    if above.shape != below.shape or above.ndim != 2 or not 0 < first <= last < above.shape[1]:
        raise InputError(
            f"{name}: slices {first} to {last} of correlators {list(above.shape)} and {list(below.shape)}"
        )
    cut = slice(first, last + 1)
    ratio = above.mean(axis=0)[cut] / below.mean(axis=0)[cut]
    samples = jackknife_samples(above)[:, cut] / jackknife_samples(below)[:, cut]
    if not (ratio > 0).all():
        raise InputError(f"{name}: C_conserved / C_other is {ratio.min():.4g} at one of slices {first} to {last}")
    spread = float(jackknife_error(np.sqrt(np.abs(samples)).mean(axis=1)))
    return Measured(float(np.sqrt(ratio).mean()), spread if error is None else error, name)
