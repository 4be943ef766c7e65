"""a_mu in windows from the averages of all parts: G(t), Z_V, bounds of the tails, the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
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
from stages.lqcd.analysis.hvp_budget import HvpBudget
from stages.lqcd.analysis.hvp_kernel import Muon
from stages.lqcd.analysis.hvp_sum import HvpSum, Window, fold, time_moments
from stages.lqcd.analysis.scale import Measured, Scale
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
    """A term of G(t), a part or one of those that are joined: its row among the averages, its current's Z_V.

    z_v: stated, or None for 1 or a ratio. conserved, current: rows whose ratio at slice `at` is Z_V^2, those
    of the conserved current and of the part's own, connected and of one mass.
    """

    row: str
    z_v: Measured | None = None
    conserved: str | None = None
    current: str | None = None
    at: int | None = None


WindowEdges = tuple[str, float | None, float | None, float]
"""Name, start and stop in fm (None: no edge), width in fm."""


@of_lattice
def contribution_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of G(t) with its samples, and what is derived from it."""
    options, (average,) = node.parameters, node.inputs
    parts, windows = len(options["parts"]), len(options["windows"])
    derived = parts * lattice.time_extent * (4 + 4 * windows) + 12 * windows * lattice.time_extent
    return Cost(stored=average.cost.stored + 8 * derived + RECORD)


@stage(
    version="1",
    labels={
        "term": FromParameter("names"),
        "part": FromParameter("shown"),
        "window": FromParameter("window_names"),
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
    averaged: Sequence[str],
    names: Sequence[str],
    parts: Sequence[HvpPart],
    shown: Sequence[str],
    window_names: Sequence[str],
    windows: Sequence[WindowEdges],
    budget_rows: Sequence[str],
    volume: int,
    scale: Scale,
    muon: Muon,
    tail: Tail | None = None,
    middle: float = 0.5,
    last: int | None = None,
    bootstrap: bool = False,
    fit: tuple[int, int | None, int, int] | None = None,
    corrections: Sequence[tuple[str, Measured]] = (),
    blinded: str | None = None,
) -> HvpContribution:
    """The budget in each window of G(t) of the terms `names`, from the rows `averaged` of an average.

    shown: the parts that they are `joined` to. volume: L^3 in sites. fit: fields of `ExponentialFit`, which
    the light part follows beyond `tail.slice`. corrections: in 1e-10, each with its window; left out where
    `blinded`.
    Raises InputError as `HvpSum` and `Tail` do, and where a ratio that Z_V is taken from is not positive.
    """
    rows = dict(zip(averaged, np.moveaxis(_with_average(average), 1, 0), strict=True))
    resampling = Resampling(bootstrap=2 * bootstrap)
    sums = [window_sum(window, scale, muon, middle, last) for window in windows]
    of_parts = dict(zip(names, parts, strict=True))
    z_v = {name: _z_v(name, part, rows) for name, part in of_parts.items()}
    stated = {name: part.z_v for name, part in of_parts.items() if part.z_v}
    factors = {name: CHARGES[name] * z[:, None] ** 2 / volume for name, z in z_v.items()}
    g = {name: factors[name] * rows[part.row] for name, part in of_parts.items()}
    budgets, notes = [], []
    if fit is not None and tail is not None:
        fitted = ExponentialFit(*fit).continued(g["light"], int(tail.slice or 0), resampling)
        g["light"], lowest = fitted.correlator, fitted.energies[0, 0]
        notes.append(
            f"light beyond slice {tail.slice} from a fit: lowest energy {lowest:.4g}, {fitted.quality}"
        )
    for total in sums:
        budget = contribution(g, total, tail=tail, resampling=resampling, z_v=stated)
        notes += [f"{total.theta.name}, {note}" for note in budget.notes]
        own = [each for window, each in corrections if window == total.theta.name and not blinded]
        budgets.append(budget.corrected(*own))
    facts = {"blinded": blinded} if blinded else {}
    at.record(notes=list(dict.fromkeys(notes)), **facts)
    together = np.stack([joined(g)[name] for name in shown], axis=1)
    folded = fold(together)[..., : sums[0].last_slice(together.shape[-1]) + 1]
    weights = np.stack([total.weights(together.shape[-1])[: folded.shape[-1]] for total in sums])
    partial = np.cumsum(folded[:, None] * weights[:, None], axis=-1)
    values, errors = (np.array(each) for each in zip(*(_rows(b, budget_rows) for b in budgets), strict=True))
    bands = np.stack([_bands(g, total, tail) for total in sums], axis=1)
    stochastic, kinds = [], []
    for total in sums:
        terms = {}
        for name, part in of_parts.items():
            amplitude = factors[name][0] * total.weights(together.shape[-1])
            if cut := tail_slice(name, g, total, tail, resampling):
                amplitude[cut + 1 :] = 0
            terms[name] = (averaged.index(part.row), amplitude)
        of_shown = [ISOSPIN if name == STRONG else (name,) for name in shown]
        of_kinds = [[n for n in names if (n == "disconnected") == of] for of in (False, True)]
        errors_of = [
            [_noise(average.noise_covariance, [terms[n] for n in each]) for each in of]
            for of in (of_shown, of_kinds)
        ]
        stochastic.append(errors_of[0])
        kinds.append(errors_of[1])
    moments = time_moments(together, MOMENTS, scale)
    ratios = np.stack([_ratio(part, rows)[..., : folded.shape[-1]] for part in parts], axis=1)
    z = np.stack(list(z_v.values()), axis=1)
    z_errors = [stated[name].error if name in stated else resampling.error(z_v[name]) for name in names]
    return HvpContribution(
        together[0], resampling.error(together), together[1:],
        weights, partial[0], resampling.error(partial),
        values, errors, np.array(stochastic), np.array(kinds),
        bands[0], resampling.error(bands),
        moments[0], resampling.error(moments),
        z[0], np.array(z_errors),
        ratios[0], resampling.error(ratios),
    )  # fmt: skip


def _with_average(average: HvpAverage) -> Array:
    return np.concatenate([average.correlator[None], average.correlator_samples])


def window_sum(window: WindowEdges, scale: Scale, muon: Muon, middle: float, last: int | None) -> HvpSum:
    """The sum in a window whose edges may be None."""
    name, start, stop, width = window
    edges = (-inf if start is None else start, inf if stop is None else stop)
    return HvpSum(scale, Window(name, *edges, width), muon, middle, last)


def _ratio(part: HvpPart, rows: Mapping[str, Array]) -> Array:
    """sqrt[S_conserved / S] of average and samples, folded, ``[1 + sample, slice]``; NaN where unknown."""
    if part.conserved is None or part.current is None:
        return np.full((len(rows[part.row]), rows[part.row].shape[-1] // 2 + 1), np.nan)
    above, below = (fold(without_oscillation(rows[name])) for name in (part.conserved, part.current))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(above / below)


def _z_v(name: str, part: HvpPart, rows: Mapping[str, Array]) -> Array:
    """Of average and samples, ``[1 + sample]``."""
    if part.at is None:
        return np.full(len(rows[part.row]), part.z_v.value if part.z_v else 1.0)
    ratio = _ratio(part, rows)
    if not 0 <= part.at < ratio.shape[-1] or not np.isfinite(ratio[:, part.at]).all():
        raise InputError(
            f"Z_V of {name} from {part.conserved} over {part.current} at slice {part.at}: there is no "
            f"positive ratio in each sample; take an earlier slice, or state Z_V with its error"
        )
    return ratio[:, part.at]


def _rows(budget: HvpBudget, names: Sequence[str]) -> tuple[list[float], list[float]]:
    """Values and errors of the rows of a budget; NaN of what it does not have."""
    pairs = {row.name: (row.value, row.error) for row in (*budget.parts, *budget.corrections)}
    pairs |= {row.name: (np.nan, row.error) for row in budget.sources}
    pairs["total"] = (budget.value, budget.error)
    found = [pairs.get(name, (np.nan, np.nan)) for name in names]
    return [value for value, _ in found], [error for _, error in found]


def _noise(covariance: Array, terms: Sequence[tuple[int, Array]]) -> float:
    """Error of a sum of averages of some rows, each with its amplitudes ``[slice]``."""
    products = [a @ covariance[i, : len(a), j, : len(b)] @ b for i, a in terms for j, b in terms]
    return float(np.sqrt(np.maximum(sum(products), 0)))


def _bands(g: Mapping[str, Array], total: HvpSum, tail: Tail | None) -> Array:
    """Sums with tails at either bound, ``[1 + sample, bounded, side, cut]``, by slice; NaN where none is."""
    first = next(iter(g.values()))
    result = np.full((len(first), len(BOUNDED), 2, first.shape[-1] // 2 + 1), np.nan)
    for number, name in enumerate(BOUNDED):
        if tail is not None and name in g and name in tail.bounded:
            cuts, bounds = bounding_band(name, g, total, tail)
            result[:, number, :, cuts] = np.stack(bounds, axis=1).transpose(2, 0, 1)
    return result
