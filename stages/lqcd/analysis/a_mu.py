"""From the measured parts of the vector correlator to a_mu with its error budget.

    G(n) = (1 / L^3) [5/9 C_l + 1/9 C_s + 4/9 C_c + (1/9) (1/4) JJ_{l-s}],    each part times its Z_V^2.

C is the slice trace of staggered quarks Tr[P O G P O G], M = 2 m + D, without volume, charge, taste factors:
the factors 2 of both propagators cancel the 1/4 for tastes. JJ is (1/T) sum_t0 J(t0 + t) J(t0) of MILC's
one-link loops, light - strange. Both are means over the three directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

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

Correlators = Mapping[str, Array]
"""G(n) of mean and samples by part, ``[1 + sample, N]``."""

CHARGES = {
    "light": 5 / 9,
    "strange": 1 / 9,
    "charm": 4 / 9,
    "disconnected": 1 / 36,
    "up": 4 / 9,
    "down": 1 / 9,
    "minus_light": -5 / 9,
}
"""What each part is multiplied with."""
ISOSPIN = ("up", "down", "minus_light")
STRONG = "strong isospin"
"""The correction of strong isospin breaking: the sum of these parts, which is one row."""
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
        volume = Measured(self.volume, 0.0, f"the volume of {self.part}").value
        if len(shape) != 2 or shape[1] < 4 or volume <= 0:
            got = f"got {list(shape)} and {self.volume!r}"
            raise InputError(f"{self.part}: needs data [config, time] and a number of spatial sites, {got}")
        conserved = self.current == "conserved"
        measured = isinstance(self.z_v, Measured) and self.z_v.value > 0
        if not (self.z_v is None if conserved else measured):
            need = "has 1, leave z_v out" if conserved else "needs z_v=Measured(0.99, 0.01, 'Z_V of ...')"
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
    Raises InputError for parts that come twice or count quarks twice, for extents and volumes that differ,
    and for arguments of another type.
    """
    options: list[tuple[object, type]] = [(tail, Tail), (resampling, Resampling), (blinding, Blinding)]
    for value, kind in [(total, HvpSum), *(each for each in options if each[0] is not None)]:
        if not isinstance(value, kind):
            raise InputError(f"a_mu takes a {kind.__name__}, got {value!r}")
    _extent(parts)
    resampling = resampling or Resampling()
    samples, notes = common_samples({part.part: (part.data, part.labels) for part in parts}, resampling)
    factor = blinding.factor if blinding else 1.0  # all that follows is linear in G
    g = {part.part: factor * part.factor * samples[part.part] for part in parts}
    z_v = {part.part: part.z_v for part in parts if part.z_v}
    budget = contribution(g, total, tail=tail, resampling=resampling, z_v=z_v)
    digest = blinding.digest if blinding else None
    return replace(budget, notes=(*notes, *budget.notes), digest=digest).corrected(*corrections)


def joined(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, with the sum of up, down and minus_light, if they are there, as one."""
    if "minus_light" not in parts:
        return dict(parts)
    own = sum(parts[name] for name in ISOSPIN if name in parts)
    return {**{name: each for name, each in parts.items() if name not in ISOSPIN}, STRONG: own}


def contribution(
    g: Correlators,
    total: HvpSum,
    *,
    tail: Tail | None,
    resampling: Resampling,
    z_v: Mapping[str, Measured] = MappingProxyType({}),
) -> HvpBudget:
    """a_mu in a window of G(n) by part, of which rows are common samples and factors are in.

    z_v: those of parts that have an error beside the samples', by part. Linear in G, errors included.
    """
    extent = next(iter(g.values())).shape[-1]
    weights, slopes = total.weights(extent), total.slopes(extent)
    cuts = {name: tail_slice(name, g, total, tail, resampling) for name in g}
    bounds = {name: _bounds(name, g, total, tail, cut) for name, cut in cuts.items()}
    values = {name: each.middle @ weights for name, each in bounds.items()}
    together = np.sum(list(values.values()), axis=0)
    slope = sum(each.middle[0] @ slopes for each in bounds.values())
    sources = [
        Measured(0.0, float(resampling.error(together)), "statistical"),
        Measured(0.0, float(abs(slope)) * total.scale.error / total.scale.a_fm, "scale"),
    ]
    for each in dict.fromkeys(z_v.values()):
        # a_mu is linear in the parts, and bounds of one take others: its slope by ln Z_V^2 is what it gains
        doubled = {name: rows[:1] * (2 if z_v.get(name) == each else 1) for name, rows in g.items()}
        gain = sum(_bounds(name, doubled, total, tail, cuts[name]).middle[0] @ weights for name in g)
        error = 2 * abs(gain - together[0]) / each.value * each.error
        sources.append(Measured(0.0, float(error), each.name))
    notes = []
    for name in (name for name, cut in cuts.items() if cut):
        width = abs((bounds[name].upper - bounds[name].lower)[0] @ weights)
        sources.append(Measured(0.0, float(width) / 2, f"tail, {name}"))
        bias = 100 * resampling.bias(values[name]) / (values[name][0] or 1.0)
        t_c = f"slice {cuts[name]}, {cuts[name] * total.scale.a_fm:.3f} fm"
        notes.append(f"{name}: bounds beyond {t_c}; bias of the resampling {round(float(bias), 3) + 0.0} %")
    rows = (Measured(float(v[0]), float(resampling.error(v)), name) for name, v in joined(values).items())
    return HvpBudget(f"a_mu [{total.theta.name}]", tuple(rows), tuple(sources), notes=tuple(notes))


def bounding_band(part: str, g: Correlators, total: HvpSum, tail: Tail) -> Array:
    """Sums of a part, its tail at a bound beyond each slice, ``[1 + sample, side, slice]``; NaN: no bound."""
    extent = g[part].shape[-1]
    weights, band = total.weights(extent), np.full((len(g[part]), 2, extent // 2 + 1), np.nan)
    for cut in range(tail.steps, min(extent // 2, total.last_slice(extent)) - 1):
        band[..., cut] = np.stack([side @ weights for side in _bounds(part, g, total, tail, cut)], axis=-1)
    return band


def _bounds(part: str, g: Correlators, total: HvpSum, tail: Tail | None, cut: int) -> Bounds:
    """The slices of one part that are summed, with its tail bounded beyond `cut`, if that is not 0."""
    if tail is None or not cut:
        return Bounds(*[total.slices(g[part])] * 2)
    last = total.last_slice(g[part].shape[-1])
    if part == "light":
        return tail.connected(g[part], cut, last)
    if missing := sorted({"light", "strange"} - g.keys()):
        raise InputError(f"the tail of the disconnected part needs the parts {missing}, too")
    return tail.disconnected(g[part], g["light"], g["strange"], cut, last)


def tail_slice(part: str, g: Correlators, total: HvpSum, tail: Tail | None, resampling: Resampling) -> int:
    """The slice asked for, or the first from which half the bounds' distance is below the error; 0: none."""
    if tail is None or part not in tail.bounded:
        return 0
    asked = tail.slice if part == "light" else tail.disconnected_slice
    if asked is not None:
        return asked
    extent, band = g[part].shape[-1], bounding_band(part, g, total, tail)
    found = min(extent // 2, total.last_slice(extent)) - 2
    for cut in range(found, tail.steps, -1):
        lower, upper = band[0, :, cut]
        if abs(upper - lower) / 2 > resampling.error(band[..., cut].mean(axis=1)):
            break
        found = cut
    return found


def _extent(parts: Sequence[VectorCorrelator]) -> int:
    names, extents = [part.part for part in parts], sorted({np.shape(part.data)[1] for part in parts})
    if len(set(names)) < len(names):
        raise InputError(f"a part is there twice: {', '.join(names)}")
    if "light" in names and {"up", "down"} & set(names) and "minus_light" not in names:
        raise InputError("light and up or down count quarks twice: add minus_light, or leave light out")
    if len(extents) != 1:
        raise InputError(f"all parts need the same number of time slices, got {extents or 'no part'}")
    if len(volumes := sorted({part.volume for part in parts})) != 1:
        raise InputError(f"all parts need the same volume, got {volumes}: they are of one ensemble")
    return extents[0]
