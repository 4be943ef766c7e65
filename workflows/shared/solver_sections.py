"""Sections of reports on solvers: the choice of one, and the low modes that solves take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from pipeline import Store, open_result
from pipeline.declare.coordinates import describe
from pipeline.reading.account import accounts
from pipeline.reading.report import Figure, Section, Table
from stages.loops.loop_figures import spectrum_figure
from stages.lqcd.solvers.trial import CONVERGED, Candidate, reason_of
from stages.shared.solver_trials import SolverTrials, cheapest
from workflows.shared.choice import SPACE, TRIALS, costs_of


def choice_sections(store: Store, workflow: str) -> Iterator[Section]:
    """Measurements of `solver: auto`, if there are any: a table of all candidates."""
    nodes = list(accounts(store, workflow))
    for node in nodes:
        if node.stage not in TRIALS:
            continue
        (record,) = node.records
        spaces = [each for other in nodes if other.name == SPACE for each in other.records]
        space = next((each for each in spaces if each.coordinates == record.coordinates), None)
        data = open_result(store, node.name, workflow=workflow).load().isel(config=0)
        trials = SolverTrials(*(data[name].values for name in SolverTrials._fields))
        cost, statistics = costs_of(record, trials._asdict(), space), record.statistics
        chosen, kinds = cheapest(cost), [kind for kind, rhs in statistics["planned"].items() if rhs]
        rows = []
        for number, name in enumerate(record.parameters["candidates"]):
            how = statistics["how"].get(name, "not tried: it was not near at the width before")
            if how != CONVERGED:
                rows.append([name, None, None, None, None, reason_of(how)])
                continue
            setup = trials.setup_seconds[number]
            if space and Candidate.parse(name).deflated:
                setup += space.statistics["eigensolve_seconds"]
            iterations = " / ".join(f"{n:.0f}" for n in trials.iterations[number] if np.isfinite(n))
            seconds = trials.seconds_per_rhs[number]
            per_rhs = " / ".join(f"{1000 * s:.1f}" for s in seconds if np.isfinite(s))
            mark = "chosen" if name == chosen else ""
            rows.append([name, iterations, f"{setup:.2f}", per_rhs, f"{cost[name]:.1f}", mark])
        planned = sum(statistics["planned"].values())
        header = ["solver", "iterations", "setup, s", "ms per rhs", f"s for {planned} rhs", ""]
        of_each = f" Of each solver: {' / '.join(kinds)}." if len(kinds) > 1 else ""
        text = (
            "Solvers with their precision and the right-hand sides of a block, measured on blocks of one "
            "configuration. The last column of figures counts the right-hand sides that were planned per "
            "configuration, and one setup; its smallest was taken. The choice stands while the campaign "
            f"grows.{of_each}"
        )
        yield Section("Choice of the solver", text, [Table(header, rows)])


def spectrum_section(store: Store, workflow: str, masses: Mapping[str, float]) -> Section:
    """Eigenvalues of all configurations beside 4 m^2 of masses by name, and a row on each eigensolve."""
    result = open_result(store, "spectrum", workflow=workflow).load()
    (node,) = (node for node in accounts(store, workflow) if node.name == SPACE)
    rows = []
    for record in node.records:
        statistics = record.statistics
        low, high = statistics["eigenvalue_range"]
        residuals = (f"{statistics[name]:.1e}" for name in ("residual_before_rounding", "residual_max"))
        cost = (statistics["restarts"], statistics["matvecs"], f"{statistics['eigensolve_seconds']:.1f}")
        rows.append([describe(record.coordinates), f"{low:.4g}", f"{high:.4g}", *cost, *residuals])
    columns = ["configuration", "lowest", "highest", "restarts", "applications", "seconds"]
    table = Table([*columns, "largest residual", "as stored"], rows)
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
