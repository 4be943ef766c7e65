"""Sections of the report on solves: their cost, the choice of the solver, and low modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from pipeline import Store, open_result
from pipeline.declare.coordinates import describe
from pipeline.reading.account import NodeAccount, accounts
from pipeline.reading.report import Details, Figure, Section, Table
from stages.loops.current_loops import MASSES
from stages.loops.loop_figures import convergence_figure, spectrum_figure
from stages.loops.solver_trials import ACCURACIES, DEFLATED, SOLVERS, SolverTrials
from workflows.g2_disconnected.choice import TRIALS, cheapest, costs, setup_seconds
from workflows.g2_disconnected.loops import SPACE
from workflows.g2_disconnected.schema import G2Parameters
from workflows.shared.report_sections import Measured, choice_section


def solves_section(nodes: Sequence[NodeAccount]) -> Section:
    """Iterations, residuals and cost of the linear systems."""
    rows = []
    for node in nodes:
        iterations = [number for block in node.statistics("iterations") for number in block]
        rhs = sum(node.statistics("rhs"))
        tolerance = node.records[0]["parameters"]["tolerance"]
        residuals = (max(node.statistics(name)) for name in ("residual_max", "full_residual_max"))
        cost = 1000 * sum(node.statistics("solve_seconds")) / rhs
        spread = f"{min(iterations)} / {median(iterations):g} / {max(iterations)}"
        rows.append([node.name, rhs, spread, tolerance, *(f"{r:.1e}" for r in residuals), f"{cost:.1f}"])
    columns = ["solves", "rhs", "iterations (min / median / max)", "tolerance", "largest residual"]
    columns += ["of the full system", "ms per rhs"]
    if all(node.joules is not None for node in nodes):
        columns.append("J per rhs")
        for row, node in zip(rows, nodes, strict=True):
            row.append(f"{(node.joules or 0.0) / row[1]:.2g}")
    table = Table(columns, rows)
    histories = {node.name: node.statistics("history")[0] for node in nodes}
    figure = Figure(
        convergence_figure(histories), "The first block of right-hand sides of each kind of solve."
    )
    text = (
        "Residuals are |b - A x| / |b|, recomputed in double precision, the largest of all right-hand sides."
    )
    return Section("Solves", text, [figure, table, *_choices(nodes)])


def _choices(nodes: Sequence[NodeAccount]) -> list[Details]:
    """Launch shapes that solves took from measurements on their device: they may alter rounding, no more."""
    used = {choice for node in nodes for chunk in node.statistics("kernel_choices") for choice in chunk}
    lines = "\n".join(sorted(used))
    return [Details("Launch shapes of GPU kernels chosen by `quarkline tune`", lines)] if used else []


def choice_sections(store: Store, workflow: str) -> Iterator[Section]:
    """Measurements of `solver: auto`, if there are any."""
    nodes = {node.name: node for node in accounts(store, workflow)}
    if TRIALS not in nodes:
        return
    (record,) = nodes[TRIALS].records
    spaces = nodes[SPACE].records if SPACE in nodes else ()
    setup = setup_seconds(next((r for r in spaces if r["coordinates"] == record["coordinates"]), None))
    data = open_result(store, TRIALS, workflow=workflow).load().isel(config=0)
    statistics = record["statistics"]
    trials = SolverTrials(*(data[name].values for name in SolverTrials._fields))
    cost = costs(trials, statistics, setup)
    measured = {
        name: Measured(
            how,
            _of_kinds(trials.iterations.sum(axis=-1), name),
            setup if name in DEFLATED else 0.0,
            _of_kinds(trials.seconds_per_rhs.mean(axis=-1), name),
            cost.get(name, np.nan),
        )
        for name, how in statistics["how"].items()
    }
    accuracies = [name for name in ACCURACIES if statistics["planned"][name]]
    kinds = [f"{mass} {accuracy}" for mass in MASSES for accuracy in accuracies]
    planned = len(MASSES) * sum(statistics["planned"].values())
    section = choice_section(measured, cheapest(cost), planned, statistics["columns"], kinds)
    remark = (
        " So many were solved on the even and on the odd sites: iterations are the sum of both, ms per rhs "
        "the mean."
    )
    yield replace(section, text=section.text + remark)


def _of_kinds(values: np.ndarray, name: str) -> list[float]:
    """Values of ``[solver, mass, accuracy]`` that were measured for this solver, mass by mass."""
    mine = values[SOLVERS.index(name)].ravel()
    return [float(value) for value in mine if np.isfinite(value)]


def spectrum_section(store: Store, parameters: G2Parameters) -> Section:
    """Eigenvalues of all configurations beside 4 m^2, and a row on each eigensolve."""
    result = open_result(store, "spectrum", workflow=parameters.workflow).load()
    (node,) = (node for node in accounts(store, parameters.workflow) if node.name == SPACE)
    rows = []
    for record in node.records:
        statistics = record["statistics"]
        low, high = statistics["eigenvalue_range"]
        residuals = (f"{statistics[name]:.1e}" for name in ("residual_before_rounding", "residual_max"))
        cost = (statistics["restarts"], statistics["matvecs"], f"{statistics['eigensolve_seconds']:.1f}")
        rows.append([describe(record["coordinates"]), f"{low:.4g}", f"{high:.4g}", *cost, *residuals])
    columns = ["configuration", "lowest", "highest", "restarts", "applications", "seconds"]
    table = Table([*columns, "largest residual", "as stored"], rows)
    masses = {"light": parameters.masses.light, "strange": parameters.masses.strange}
    figure = Figure(
        spectrum_figure(result.eigenvalue, masses), "Lowest eigenvalues, a line per configuration."
    )
    remains = "; ".join(
        f"{name}: {_gain(result.eigenvalue.values, mass):.1f}" for name, mass in masses.items()
    )
    text = (
        "Lowest eigenvectors of B = -D_eo D_oe on the even sites, computed once for all masses; the solves "
        "run on A = B + 4 m^2. Residuals are |B v - lambda v|. Without these modes the square root of the "
        f"condition number, to which iterations of CG are proportional, is smaller by a factor of, {remains}."
    )
    return Section("Low modes", text, [figure, table])


def _gain(eigenvalue: NDArray[np.float64], mass: float) -> float:
    """Mean over configurations of sqrt((lambda_k + 4 m^2) / (lambda_1 + 4 m^2))."""
    shifted = eigenvalue + 4 * mass**2
    return float(np.mean(np.sqrt(shifted[:, -1] / shifted[:, 0])))
