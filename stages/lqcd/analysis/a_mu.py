"""From the measured parts of the vector correlator to a_mu with its error budget.

    G(n) = (1 / L^3) [5/9 C_l + 1/9 C_s + 4/9 C_c + (1/9) (1/4) JJ_{l-s}],    each part times its Z_V^2.

C is the slice trace of staggered quarks Tr[P O G P O G], M = 2 m + D, without volume, charge, taste factors:
the factors 2 of both propagators cancel the 1/4 for tastes. JJ is (1/T) sum_t0 J(t0 + t) J(t0) of MILC's
one-link loops, light - strange. Both are means over the three directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stages.base.errors import InputError, suggestion
from stages.lqcd.analysis.blinding import Blinding
from stages.lqcd.analysis.bounding import Bounds, Tail
from stages.lqcd.analysis.common_resampling import Labels, Resampling, common_samples
from stages.lqcd.analysis.hvp_budget import HvpBudget
from stages.lqcd.analysis.hvp_kernel import Array
from stages.lqcd.analysis.hvp_sum import HvpSum
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
"""What each part is multiplied with; up + down + minus_light is the correction of strong isospin breaking."""
CURRENTS = ("conserved", "one_link", "local")


@dataclass(frozen=True, eq=False)
class VectorCorrelator:
    """One part of G(t) as it was measured.

    part: a name of `CHARGES`. data: C(t) or JJ(t) ``[config, N]`` in lattice units, the whole period, source
    at 0. labels: stream and number of each configuration ('a.1020'). volume: L^3 in sites. current, z_v:
    whose correlator it is and that current's Z_V; the conserved one has 1.
    Raises InputError for an unknown part or current, a Z_V that is missing, and data of another shape.
    """

    part: str
    data: ArrayLike
    labels: Labels
    volume: int
    current: Literal["conserved", "one_link", "local"]
    z_v: Measured | None = None

    def __post_init__(self) -> None:
        for what, name, known in (("part", self.part, list(CHARGES)), ("current", self.current, CURRENTS)):
            if name not in known:
                raise InputError(f"unknown {what} {name!r} of a vector correlator{suggestion(name, known)}")
        shape = np.shape(self.data)
        if len(shape) != 2 or shape[1] < 4 or not self.volume > 0:
            got = f"{list(shape)} and a volume of {self.volume!r}"
            raise InputError(
                f"{self.part}: needs data [config, time] and a number of spatial sites, got {got}"
            )
        if (self.current == "conserved") != (self.z_v is None):
            need = (
                "has Z_V = 1, leave z_v out" if self.z_v else "needs z_v=Measured(0.99, 0.01, 'Z_V of ...')"
            )
            raise InputError(f"{self.part}: the {self.current} current {need}, got {self.z_v!r}")

    @property
    def factor(self) -> float:
        """Charges times Z_V^2 / L^3: G(t) is this times the data."""
        return CHARGES[self.part] * (self.z_v.value if self.z_v else 1) ** 2 / self.volume


def a_mu(
    parts: Sequence[VectorCorrelator],
    total: HvpSum,
    *,
    tail: Tail | None = None,
    resampling: Resampling | None = None,
    corrections: Sequence[Measured] = (),
    blinding: Blinding | None = None,
) -> HvpBudget:
    """a_mu in a window, with its error budget, from parts measured on any configurations of an ensemble.

    parts: of different names; all have the same N. total: scale, window, constants and range of the sum.
    tail: bounds of the light and of the disconnected part; None sums the data to the end.
    resampling: one for all parts; the jackknife by default. corrections: stated, in 1e-10, added.
    blinding: its factor is on all numbers of the result, which then takes no corrections.
    Raises InputError for parts that come twice or count quarks twice, and for extents that differ.
    """
    _check(parts)
    resampling = resampling or Resampling()
    common = common_samples({part.part: (part.data, part.labels) for part in parts}, resampling)
    g = {
        part.part: part.factor * np.concatenate([common.mean[part.part][None], common.samples[part.part]])
        for part in parts
    }
    sums = {part.part: _summed(part.part, g, total, tail, resampling) for part in parts}
    notes = [*common.notes, *(note for each in sums.values() for note in each.notes)]
    slope = sum(each.slope for each in sums.values())
    together = np.sum([each.values for each in sums.values()], axis=0)
    sources = [
        Measured(0.0, float(resampling.error(together[1:])), "statistical"),
        Measured(0.0, abs(slope) * total.scale.error / total.scale.a_fm, "scale"),
        *_z_v_errors(parts, sums),
        *(Measured(0.0, each.tail, f"tail, {name}") for name, each in sums.items() if each.notes),
    ]
    rows = (
        Measured(each.value, float(resampling.error(each.values[1:])), name) for name, each in sums.items()
    )
    budget = HvpBudget(f"a_mu [{total.window.name}]", tuple(rows), tuple(sources), notes=tuple(notes))
    return (budget.blinded(blinding) if blinding else budget).corrected(*corrections)


class _Sum(NamedTuple):
    """a_mu of a part in 1e-10: mean and samples ``[1 + sample]``, slope by ln a, half the distance of bounds."""

    values: Array
    slope: float
    tail: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        return float(self.values[0])


def _summed(
    part: str, g: Mapping[str, Array], total: HvpSum, tail: Tail | None, resampling: Resampling
) -> _Sum:
    """The sum of one part of G(n) ``[1 + sample, N]``, with its tail bounded where that is asked for."""
    extent = g[part].shape[-1]
    weights, last = total.weights(extent), total.last_slice(extent)
    if tail is None or part not in ("light", "disconnected"):
        return _Sum(total.value(g[part]), float(total.slices(g[part][0]) @ total.slopes(extent)))
    asked = tail.slice if part == "light" else tail.disconnected_slice
    cuts = range(2, min(extent // 2, last) - 1) if asked is None else [asked]
    for cut in cuts:
        bounds = _bounded(part, g, tail, cut, last)
        values = bounds.middle @ weights
        distance = float(abs((bounds.upper - bounds.lower)[0] @ weights)) / 2
        if distance <= resampling.error(values[1:]):
            break
    bias = resampling.bias(values[0], values[1:]) / values[0]
    t_c = f"slice {cut}, {cut * total.scale.a_fm:.3f} fm"
    note = f"{part}: bounds beyond {t_c}; relative bias of the resampling {bias:.1e}"
    return _Sum(values, float(bounds.middle[0] @ total.slopes(extent)), distance, (note,))


def _bounded(part: str, g: Mapping[str, Array], tail: Tail, cut: int, last: int) -> Bounds:
    if part == "light":
        return tail.connected(g[part], cut, last)
    if missing := sorted({"light", "strange"} - g.keys()):
        raise InputError(f"the tail of the disconnected part needs the parts {missing}, too")
    return tail.disconnected(g[part], g["light"], g["strange"], cut, last)


def _check(parts: Sequence[VectorCorrelator]) -> None:
    names, extents = [part.part for part in parts], sorted({np.shape(part.data)[1] for part in parts})
    if len(set(names)) < len(names):
        raise InputError(f"a part is there twice: {', '.join(names)}")
    if "light" in names and {"up", "down"} & set(names) and "minus_light" not in names:
        raise InputError("light and up or down count quarks twice: add minus_light, or leave light out")
    if len(extents) != 1:
        raise InputError(f"all parts need the same number of time slices, got {extents or 'no part'}")


def _z_v_errors(parts: Sequence[VectorCorrelator], sums: Mapping[str, _Sum]) -> list[Measured]:
    """The error from each Z_V, 2 a_mu / Z_V times its error, of all parts that have it together."""
    slopes: dict[Measured, float] = {}
    for part in parts:
        if part.z_v is not None:
            slopes[part.z_v] = slopes.get(part.z_v, 0.0) + 2 * sums[part.part].value / part.z_v.value
    return [Measured(0.0, abs(slope) * z_v.error, z_v.name) for z_v, slope in slopes.items()]
