"""a_mu in windows from the averages of all parts: G(t), Z_V, bounds of the tails, the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Cost, Dims, FromParameter, Node, stage
from stages.base.errors import InputError
from stages.hvp.average import HvpAverage
from stages.lqcd.analysis.a_mu import (
    CHARGES,
    ISOSPIN,
    STRONG,
    bounding_band,
    contribution,
    joined,
    tail_slice,
)
from stages.lqcd.analysis.bounding import Tail
from stages.lqcd.analysis.common_resampling import Resampling
from stages.lqcd.analysis.effective_mass import without_oscillation
from stages.lqcd.analysis.exponential_fit import ExponentialFit
from stages.lqcd.analysis.hvp_sum import HvpSum, fold, time_moments
from stages.lqcd.analysis.scale import Measured
from stages.lqcd.lattice.geometry import Lattice
from stages.shared.costs import RECORD, of_lattice

Array = NDArray[np.float64]
MOMENTS = (4, 6, 8, 10)
BOUNDED = ("light", "disconnected")
"""Parts whose tails are bounded."""
KINDS = ("walls", "noise vectors")
"""Noise of the connected and of the disconnected part."""


class HvpContribution(NamedTuple):
    """G(t) and a_mu by part, in windows, with the error budget, float64.

    All factors are in: charges, Z_V^2, 1/L^3. Where `blinded` is in the record, so is its factor, but for
    weights and Z_V; corrections are then missing (NaN) and not in the total.
    """

    correlator: Annotated[np.ndarray, Dims("part", "time")]
    """G(t) in lattice units; charges, Z_V^2 and 1/L^3 are in."""
    correlator_error: Annotated[np.ndarray, Dims("part", "time")]
    correlator_samples: Annotated[np.ndarray, Dims("sample", "part", "time")]
    weight: Annotated[np.ndarray, Dims("window", "slice")]
    """w(n) of a_mu = sum w(n) G(n), in 1e-10; n = 0 ... N/2 of the folded G."""
    partial_sum: Annotated[np.ndarray, Dims("window", "part", "slice")]
    """a_mu up to slice n without bounds of the tail, in 1e-10."""
    partial_sum_error: Annotated[np.ndarray, Dims("window", "part", "slice")]
    budget: Annotated[np.ndarray, Dims("window", "row")]
    """Parts, corrections and total, in 1e-10; NaN for rows that are errors only."""
    budget_error: Annotated[np.ndarray, Dims("window", "row")]
    """Statistical errors of parts, which are correlated; each source of the total's error; in 1e-10."""
    stochastic: Annotated[np.ndarray, Dims("window", "part")]
    """Noise's share of the statistical error in 1e-10, up to a bounded tail, at the average's Z_V."""
    noise: Annotated[np.ndarray, Dims("window", "kind")]
    """The same of all connected parts, whose walls are the same ones, and of loops."""
    bound: Annotated[np.ndarray, Dims("window", "bounded", "side", "cut")]
    """a_mu of a part with its tail at the lower or upper bound beyond slice n_c, in 1e-10; NaN without."""
    bound_error: Annotated[np.ndarray, Dims("window", "bounded", "side", "cut")]
    moment: Annotated[np.ndarray, Dims("part", "power")]
    """Sum of t^k G(t) over t of both signs, GeV^(2 - k)."""
    moment_error: Annotated[np.ndarray, Dims("part", "power")]
    z_v: Annotated[np.ndarray, Dims("term")]
    z_v_error: Annotated[np.ndarray, Dims("term")]
    z_v_ratio: Annotated[np.ndarray, Dims("term", "slice")]
    """sqrt[S_conserved(t) / S(t)] of the term's current, whose change with t and mass is of order a^2."""
    z_v_ratio_error: Annotated[np.ndarray, Dims("term", "slice")]


@dataclass(frozen=True)
class HvpPart:
    """A term of G(t), a part or one of those that are joined: its row of the average, and its current's Z_V.

    z_v: stated, or None for 1 or a ratio. conserved, current: rows whose ratio at slice `at` is Z_V^2, those
    of the conserved current and of the term's own, connected and of one mass.
    """

    row: int
    z_v: Measured | None = None
    conserved: int | None = None
    current: int | None = None
    at: int | None = None


@of_lattice
def contribution_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of G(t) with its samples, and what is derived from it."""
    options, (average,) = node.parameters, node.inputs
    parts, windows = len(options["parts"]), len(options["sums"])
    derived = parts * lattice.time_extent * (4 + 4 * windows) + 12 * windows * lattice.time_extent
    return Cost(stored=average.cost.stored + 8 * derived + RECORD)


@stage(
    version="1",
    labels={
        "term": FromParameter("names"),
        "part": FromParameter("shown"),
        "window": FromParameter("windows"),
        "row": FromParameter("budget_rows"),
        "bounded": BOUNDED,
        "side": ("lower", "upper"),
        "power": MOMENTS,
        "kind": KINDS,
    },
    cost=contribution_cost,
)
def hvp_contribution(
    average: HvpAverage,
    *,
    at: At,
    names: Sequence[str],
    parts: Sequence[HvpPart],
    shown: Sequence[str],
    windows: Sequence[str],
    sums: Sequence[HvpSum],
    budget_rows: Sequence[str],
    volume: int,
    tail: Tail | None = None,
    bootstrap: bool = False,
    fit: ExponentialFit | None = None,
    corrections: Sequence[tuple[str, Measured]] = (),
    blinded: str | None = None,
) -> HvpContribution:
    """The budget in each window of G(t) of the terms `names`, from rows of an average.

    shown: the parts that they are `joined` to. sums: of the windows. volume: L^3 in sites. fit: what the
    light part follows beyond `tail.slice`. corrections: in 1e-10, each with its window; left out where
    `blinded`.
    Raises InputError as `HvpSum` and `Tail` do, and where a ratio that Z_V is taken from is not positive.
    """
    rows = np.concatenate([average.correlator[None], average.correlator_samples])
    resampling, extent = Resampling(bootstrap=2 * bootstrap), rows.shape[-1]
    terms = dict(zip(names, parts, strict=True))
    ratios = np.stack([_ratio(part, rows) for part in parts], axis=1)
    z_v = {name: _z_v(name, part, ratios[:, k]) for k, (name, part) in enumerate(terms.items())}
    stated = {name: part.z_v for name, part in terms.items() if part.z_v}
    factors = {name: CHARGES[name] * z[:, None] ** 2 / volume for name, z in z_v.items()}
    g = {name: factors[name] * rows[:, part.row] for name, part in terms.items()}
    budgets, notes, noise = [], [], []
    if fit is not None and tail is not None:
        fitted = fit.continued(g["light"], int(tail.slice or 0), resampling)
        g["light"], lowest = fitted.correlator, fitted.energies[0, 0]
        notes.append(
            f"light beyond slice {tail.slice} from a fit: lowest energy {lowest:.4g}, {fitted.quality}"
        )
    members: list[Sequence[str]] = [ISOSPIN if name == STRONG else (name,) for name in shown]
    members += [[name for name in names if (name == "disconnected") == loops] for loops in (False, True)]
    for window, total in zip(windows, sums, strict=True):
        budget = contribution(g, total, tail=tail, resampling=resampling, z_v=stated)
        notes += [f"{window}, {note}" for note in budget.notes]
        own = [each for name, each in corrections if name == window and not blinded]
        table = budget.corrected(*own).rows
        budgets.append([table.get(name, (np.nan, np.nan)) for name in budget_rows])
        amplitudes = {name: (terms[name].row, factors[name][0] * total.weights(extent)) for name in names}
        for name, (_, amplitude) in amplitudes.items():
            if cut := tail_slice(name, g, total, tail, resampling):
                amplitude[cut + 1 :] = 0
        noise.append([_noise(average.noise_covariance, [amplitudes[n] for n in of]) for of in members])
    at.record(notes=list(dict.fromkeys(notes)), **({"blinded": blinded} if blinded else {}))
    together = np.stack([joined(g)[name] for name in shown], axis=1)
    weight, (value, error) = (
        np.stack([each.weights(extent) for each in sums]),
        np.moveaxis(np.array(budgets), -1, 0),
    )
    stochastic, kinds = np.split(np.array(noise), [len(shown)], axis=1)
    z_error = [stated[name].error if name in stated else resampling.error(z) for name, z in z_v.items()]

    def both(samples: Array) -> tuple[Array, Array]:
        return samples[0], resampling.error(samples)

    return HvpContribution(
        *both(together), together[1:],
        weight, *both(np.stack([each.partial_sums(together) for each in sums], axis=1)),
        value, error, stochastic, kinds,
        *both(np.stack([_bands(g, each, tail) for each in sums], axis=1)),
        *both(time_moments(together, MOMENTS, sums[0].scale)),
        np.array([z[0] for z in z_v.values()]), np.array(z_error),
        *both(ratios[..., : weight.shape[-1]]),
    )  # fmt: skip


def _ratio(part: HvpPart, rows: Array) -> Array:
    """sqrt[S_conserved / S] of average and samples, folded, ``[1 + sample, slice]``; NaN where unknown."""
    if part.conserved is None or part.current is None:
        return np.full((len(rows), rows.shape[-1] // 2 + 1), np.nan)
    above, below = (fold(without_oscillation(rows[:, row])) for row in (part.conserved, part.current))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(above / below)


def _z_v(name: str, part: HvpPart, ratio: Array) -> Array:
    """Of average and samples, ``[1 + sample]``."""
    if part.at is None:
        return np.full(len(ratio), part.z_v.value if part.z_v else 1.0)
    if not np.isfinite(ratio[:, part.at]).all():
        raise InputError(
            f"Z_V of {name} from the ratio to the conserved current at slice {part.at}: there is no positive "
            f"ratio in each sample; take an earlier slice, or state Z_V with its error"
        )
    return ratio[:, part.at]


def _noise(covariance: Array, terms: Sequence[tuple[int, Array]]) -> float:
    """Error of a sum of averages of some rows, each with its amplitudes ``[slice]``."""
    products = [a @ covariance[i, : len(a), j, : len(b)] @ b for i, a in terms for j, b in terms]
    return float(np.sqrt(np.maximum(sum(products), 0)))


def _bands(g: Mapping[str, Array], total: HvpSum, tail: Tail | None) -> Array:
    """Sums with tails at either bound, ``[1 + sample, bounded, side, cut]``, by slice; NaN where none is."""
    first = next(iter(g.values()))
    bands = [np.full((len(first), 2, first.shape[-1] // 2 + 1), np.nan) for _ in BOUNDED]
    for number, name in enumerate(BOUNDED):
        if tail is not None and name in g and name in tail.bounded:
            bands[number] = bounding_band(name, g, total, tail)
    return np.stack(bands, axis=1)
