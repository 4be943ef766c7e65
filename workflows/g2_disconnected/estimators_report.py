"""The report's section on estimators: exact and noisy parts, and what each costs for an error of C(t)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray
from numpy.typing import NDArray

from pipeline import Store, open_result
from pipeline.reading.account import NodeAccount, accounts
from pipeline.reading.report import Figure, Section, Table
from stages.loops.current_loops import DIFFERENCE, FLAVOURS, LIGHT, Masses
from stages.loops.loop_figures import estimator_cost_figure
from stages.loops.low_mode_loops import LowModeLoops, low_flavours
from stages.lqcd.analysis.estimator_cost import EstimatorCost
from stages.lqcd.analysis.stochastic_error import LEAST_VECTORS
from stages.lqcd.estimators.truncated import Piece, truncated_pieces
from workflows.g2_disconnected.schema import G2Parameters, alternatives
from workflows.shared.choice import SPACE

MAIN = "as configured"
PLAIN = "plain difference of the same solves"
MULTIPLES = 256
"""Of the measured noise vectors, to which errors are drawn; from the two vectors on that a pair takes."""


def wanted(parameters: G2Parameters) -> bool:
    """True if there is anything to compare, on noise vectors enough for it."""
    estimator, fine = parameters.estimator, parameters.solves.fine
    several = parameters.alternatives or estimator.low_modes or estimator.difference == "split_even"
    least = min([parameters.noise.vectors, *([fine.vectors] if fine else [])])
    return bool(several) and least >= LEAST_VECTORS


def estimators_section(store: Store, parameters: G2Parameters) -> Section:
    """Parts of the loops, and a table and a plot of cost against error for light and light - strange."""
    parts = [parts_table(store, parameters)] if parameters.estimator.low_modes else []
    shown: list[Figure | Table] = [*parts]
    for flavour in (LIGHT, DIFFERENCE):
        costs = dict(_costs(store, parameters, flavour))
        curves = {name: cost.curve(_factors(cost)) for name, cost in costs.items()}
        measured = {name: (cost.work(), cost.correlator_error()) for name, cost in costs.items()}
        caption = (
            f"Stochastic error of C(t), {FLAVOURS[flavour]}, against work, eigenvectors included: measured, "
            "and what it says of other numbers of noise vectors."
        )
        shown.append(Figure(estimator_cost_figure(curves, measured), caption))
        shown.append(cost_table(costs, f"Cost of the same error, {FLAVOURS[flavour]}"))
    text = (
        "Errors are those of the noise at fixed gauge fields. Work is seconds per configuration, at the pace "
        "of the fastest chunk of each kind, as first ones compile kernels; what is done once per "
        "configuration, eigenvectors and their currents, is part of it. The last columns say what each "
        "estimator would take for the error of C(t) that the first one reached."
    )
    return Section("Estimators", text, shown)


def _factors(cost: EstimatorCost) -> NDArray[np.float64]:
    return np.geomspace(2 / min(cost.counts), MULTIPLES, 25)


def cost_table(costs: dict[str, EstimatorCost], caption: str) -> Table:
    """A row for each estimator; the error to reach is that of the first."""
    own = costs[MAIN]
    goal, rows = own.correlator_error(), []
    for name, cost in costs.items():
        needed = cost.work_for(goal)
        vectors = cost.counts[0]
        errors = (cost.loop_error() * np.sqrt(vectors), cost.correlator_error())
        once = f"{cost.once:.1f}" if cost.once else "-"
        work = (once, f"{cost.seconds / vectors:.2f}", f"{needed:.3g}", f"{needed / own.work():.3g}")
        rows.append([name, vectors, *(f"{error:.3g}" for error in errors), *work])
    columns = ["estimator", "vectors", "noise of J per vector", "error of C(t)", "s once", "s per vector"]
    return Table([*columns, "s for the same error", "ratio"], rows, caption)


def parts_table(store: Store, parameters: G2Parameters) -> Table:
    """Root mean squares over configurations, spatial directions and time slices."""
    low, high = low_parts(store, parameters), _noisy(store, parameters, "", "").values
    mean, error = high.mean(axis=1), high.std(axis=1, ddof=1) / np.sqrt(high.shape[1])
    rows = [
        [name, *(_rms(part[:, flavour, :3]) for part in (low, mean, error))]
        for flavour, name in enumerate(FLAVOURS)
    ]
    columns = ["flavour", "exact low part", "noisy remainder", "its error"]
    return Table(columns, rows, "Parts of J_i(t), root mean squares", digits=3)


def low_parts(store: Store, parameters: G2Parameters) -> NDArray[np.float64]:
    """The exact low part of J ``[config, flavour, direction, time]``."""
    result = _result(store, parameters, "low_modes")
    masses = (parameters.masses.light, parameters.masses.strange)
    arrays = [result[name].values for name in LowModeLoops._fields]
    of_configs = (LowModeLoops(*one) for one in zip(*arrays, strict=True))
    return np.stack([low_flavours(low, Masses(*masses)).current for low in of_configs])


def _costs(store: Store, parameters: G2Parameters, flavour: int) -> Iterator[tuple[str, EstimatorCost]]:
    """Costs of the main estimator and the alternatives; plain differences beside split-even ones."""
    nodes = {node.name: node for node in accounts(store, parameters.workflow)}
    for name, changed in ((MAIN, parameters), *alternatives(parameters)):
        prefix = "" if name == MAIN else f"{name}_"
        current = [loops_of(store, changed, suffix, prefix) for suffix in _suffixes(changed)]
        seconds, once = _seconds(nodes, prefix), _once(nodes, changed)
        yield name, EstimatorCost.of(_pieces(current, flavour), seconds, once)
        if flavour == DIFFERENCE and changed.estimator.difference == "split_even":
            plain = [part - part.roll(flavour=-1) for part in current]
            beside = PLAIN if name == MAIN else f"{name}, {PLAIN}"
            yield beside, EstimatorCost.of(_pieces(plain, LIGHT), seconds, once)


def _suffixes(parameters: G2Parameters) -> list[str]:
    return ["", "_fine"] if parameters.solves.fine else [""]


def _pieces(current: list[xarray.DataArray], flavour: int) -> list[tuple[Piece, ...]]:
    """Pieces, sloppy and fine, of each configuration.

    From loops ``[config, noise, flavour, direction, time]``.
    """
    parts = [part[:, :, flavour] for part in current]
    numbers = [tuple(int(n) for n in part.noise.values) for part in parts]
    result = []
    for config in range(parts[0].sizes["config"]):
        pieces = [Piece(n, part.values[config]) for n, part in zip(numbers, parts, strict=True)]
        result.append(truncated_pieces(pieces[0], pieces[1] if len(pieces) > 1 else None))
    return result


def loops_of(store: Store, parameters: G2Parameters, suffix: str = "", prefix: str = "") -> xarray.DataArray:
    """J ``[config, noise, flavour, direction, time]`` with its exact part; suffix: '' or '_fine'."""
    noisy = _noisy(store, parameters, suffix, prefix)
    return noisy + low_parts(store, parameters)[:, None] if parameters.estimator.low_modes else noisy


def _noisy(store: Store, parameters: G2Parameters, suffix: str, prefix: str) -> xarray.DataArray:
    """Stored J ``[config, noise, flavour, direction, time]``, the mean over probes."""
    if parameters.estimator.difference == "split_even":
        current = _result(store, parameters, f"{prefix}loops_split_even{suffix}").current
    else:
        names = (f"{prefix}loops_{mass}{suffix}" for mass in FLAVOURS[:DIFFERENCE])
        light, strange = (_result(store, parameters, name).current for name in names)
        current = xarray.concat([light, strange, light - strange], "flavour")
    return current.mean("probe").transpose("config", "noise", "flavour", "direction", "time")


def _seconds(nodes: dict[str, NodeAccount], prefix: str) -> float:
    """Per configuration, for all noise vectors; by the fastest chunk, since first ones compile kernels."""
    loops = [node for name, node in nodes.items() if name.startswith(f"{prefix}loops_")]
    total = sum(_fastest(node) * len(node.records) for node in loops)
    return total / len(nodes["observables"].records)


def _fastest(node: NodeAccount) -> float:
    return min(record.seconds for record in node.records)


def _once(nodes: dict[str, NodeAccount], parameters: G2Parameters) -> float:
    """Per configuration: eigenvectors where they are used, their currents where they are added."""
    names = [SPACE] if parameters.deflation else []
    names += ["low_modes"] if parameters.estimator.low_modes else []
    return sum(_fastest(nodes[name]) for name in names)


def _result(store: Store, parameters: G2Parameters, name: str) -> xarray.Dataset:
    return open_result(store, name, workflow=parameters.workflow).load()


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values**2)))
