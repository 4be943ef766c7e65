"""Sections of reports on solvers: solves, the choice of one, multigrid setups, low modes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline import Figure, Section, Store, Table, accounts
from pipeline.declare.coordinates import describe
from stages.loops.loop_figures import convergence_figure, spectrum_figure
from stages.lqcd.solvers.trial import CONVERGED, Candidate, reason_of
from stages.shared.solver_trials import SolverTrials, cheapest
from workflows.shared.choice import SPACE, SPACE_OF_TRIALS, TRIALS, costs_of, eigensolve_of
from workflows.shared.report_sections import loaded, node_of

SOLVES = ("rhs", "iterations (min / median / max)", "tolerance", "largest residual")
"""Columns of `solves_row` after the name; the residual of the full system and the time follow."""


def solves_row(name: str, statistics: Sequence[Mapping[str, Any]], tolerance: float) -> list[Any]:
    """Iterations, residuals and milliseconds per right-hand side of some solves, as each chunk recorded."""
    iterations = [number for each in statistics for number in each["iterations"]]
    rhs = sum(each["rhs"] for each in statistics)
    seconds = sum(each["solve_seconds"] for each in statistics)
    spread = f"{min(iterations)} / {median(iterations):g} / {max(iterations)}"
    residuals = ("residual_max", "full_residual_max")
    largest = [f"{max(each[name] for each in statistics):.1e}" for name in residuals]
    return [name, rhs, spread, tolerance, *largest, f"{1000 * seconds / rhs:.1f}"]


def solves_section(statistics: Sequence[Mapping[str, Any]], tolerance: float) -> Iterator[Section]:
    """Iterations, residuals and cost of propagators, if there are any; statistics: as each chunk recorded."""
    if not statistics:
        return
    first = statistics[0]
    columns = ["solver", *SOLVES, "of the full operator", "ms per rhs"]
    table = Table(columns, [solves_row(first["solver"], statistics, tolerance)])
    figure = Figure(convergence_figure({first["solver"]: first}), "The first block of right-hand sides.")
    text = (
        "Residuals are |b - A x| / |b| of the even-odd system, and |b - M x| / |b| of the full operator, "
        "recomputed in double precision, the largest of all columns. Those of every column are in the store. "
        "Times leave out the compiling and reading of kernels."
    )
    yield Section("Solves", text, [figure, table])


def solves_of(
    store: Store, workflow: str, stage: str, within: str | None = None
) -> Iterator[Mapping[str, Any]]:
    """Statistics of a transient stage that solves, each chunk once: kept with what was made of it.

    within: the node that made it; any unless given.
    """
    seen = set()
    for node in accounts(store, workflow):
        for record in node.records if within in (None, node.name) else ():
            for each in record.transient:
                if each["stage"] == stage and each["key"] not in seen:
                    seen.add(each["key"])
                    yield record.without_kernels("solve_seconds", each["node"])


def choice_sections(store: Store, workflow: str) -> Iterator[Section]:
    """Measurements of `solver: auto`, if there are any: a table of all candidates."""
    nodes = list(accounts(store, workflow))
    for node in nodes:
        if node.stage not in TRIALS:
            continue
        (record,) = node.records
        named = {other.name: other.records for other in nodes}
        spaces = named.get(SPACE_OF_TRIALS) or named.get(SPACE, ())
        space = next((each for each in spaces if each.coordinates == record.coordinates), None)
        data = loaded(store, workflow, node.name).isel(config=0)
        trials = SolverTrials(*(data[name].values for name in SolverTrials._fields))
        cost, statistics = costs_of(record, trials._asdict(), space), record.statistics
        tried = trials, record.parameters["candidates"]
        chosen, kinds = cheapest(cost), [kind for kind, rhs in statistics["planned"].items() if rhs]
        rows = []
        for number, name in enumerate(record.parameters["candidates"]):
            how = statistics["how"].get(name, "not tried: it was not near at the width before")
            if how != CONVERGED:
                rows.append([name, None, None, None, None, reason_of(how)])
                continue
            setup = trials.setup_seconds[number] + eigensolve_of(space).of(name, *tried)
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
        if space and any(Candidate.parse(name).deflated > 1 for name in cost):
            text += (
                f" deflated/n: with the lowest 1/n of {space.parameters['vectors']} eigenvectors, the time "
            )
            text += "of whose search is estimated from that of all."
        yield Section("Choice of the solver", text, [Table(header, rows)])


def setup_sections(store: Store, workflow: str) -> Iterator[Section]:
    """Times of the multigrid setups and how well they converge, where there are any."""
    for node in accounts(store, workflow):
        if node.stage != "multigrid_setup":
            continue
        rows = []
        for record in node.records:
            statistics = record.statistics
            tried = ", ".join(f"{attempt['rate']:.2g}" for attempt in statistics["attempts"][:-1]) or None
            place = describe(record.coordinates)
            rows.append([place, f"{statistics['setup_seconds']:.2f}", f"{statistics['rate']:.2g}", tried])
        grids = ", ".join(node.records[0].statistics["grids"])
        text = (
            f"Coarse grids: {grids}. The rate is the factor by which a cycle reduces a random residual; a "
            "setup with a poor one is made again from other random vectors."
        )
        columns = ["configuration", "seconds", "rate", "rates of setups not used"]
        yield Section("Multigrid setups", text, [Table(columns, rows)])


def spectrum_section(store: Store, workflow: str, masses: Mapping[str, float]) -> Section:
    """Eigenvalues of all configurations beside 4 m^2 of masses by name, and a row on each eigensolve."""
    result, node = loaded(store, workflow, "spectrum"), node_of(store, workflow, SPACE)
    rows = []
    for record in node.records:
        statistics = record.statistics
        low, high = statistics["eigenvalue_range"]
        found, stored = statistics["residual_before_rounding"], statistics["residual_max"]
        residuals = (f"{each / statistics['window'][1]:.1e}" for each in (found, stored))
        cost = (statistics["restarts"], statistics["matvecs"], f"{statistics['eigensolve_seconds']:.1f}")
        limits = f"{low:.4g}", f"{high:.4g}"
        accuracy = record.parameters["tolerance"], *residuals
        rows.append([describe(record.coordinates), *limits, *cost, *accuracy])
    columns = ["configuration", "lowest", "highest", "restarts", "applications", "seconds", "tolerance"]
    table = Table([*columns, "largest residual / largest eigenvalue", "the same, as stored"], rows)
    figure = Figure(
        spectrum_figure(result.eigenvalue, masses), "Lowest eigenvalues, a line per configuration."
    )
    remains = "; ".join(
        f"{name}: {_gain(result.eigenvalue.values, mass):.1f}" for name, mass in masses.items()
    )
    text = (
        "Lowest eigenvectors of B = -D_eo D_oe on the even sites, computed once for all masses; the solves "
        "run on A = B + 4 m^2. Residuals are |B v - lambda v|, like the tolerance relative to the "
        "largest eigenvalue of B. Without these modes the square root of the condition number, to which "
        f"iterations of CG are proportional, is smaller by a factor of, {remains}."
    )
    return Section("Low modes", text, [figure, table])


def _gain(eigenvalue: NDArray[np.float64], mass: float) -> float:
    """Mean over configurations of sqrt((lambda_k + 4 m^2) / (lambda_1 + 4 m^2))."""
    shifted = eigenvalue + 4 * mass**2
    return float(np.mean(np.sqrt(shifted[:, -1] / shifted[:, 0])))
