"""The choice of the solver of the disconnected current, as the report shows it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeline import Store, open_result
from pipeline.reading.account import accounts
from pipeline.reading.report import Section
from stages.loops.solver_trials import ACCURACIES, DEFLATED, MASSES, SOLVERS, SolverTrials
from workflows.g2_disconnected.choice import SPACE, TRIALS, cheapest, costs, setup_seconds
from workflows.shared.solver_choice_report import Measured, choice_section


def choice_sections(store: Store, workflow: str) -> Iterator[Section]:
    """What `solver: auto` measured, where it did."""
    nodes = {node.name: node for node in accounts(store, workflow)}
    if TRIALS not in nodes:
        return
    (record,) = nodes[TRIALS].records
    spaces = nodes[SPACE].records if SPACE in nodes else ()
    setup = setup_seconds(next((r for r in spaces if r["coordinates"] == record["coordinates"]), None))
    data, said = open_result(store, TRIALS, workflow=workflow).load().isel(config=0), record["statistics"]
    found = SolverTrials(*(data[name].values for name in SolverTrials._fields))
    cost = costs(found, said, setup)
    measured = {
        name: Measured(
            how,
            _of_kinds(found.iterations, name),
            setup if name in DEFLATED else 0.0,
            _of_kinds(found.seconds_per_rhs, name),
            cost.get(name, np.nan),
        )
        for name, how in said["how"].items()
    }
    accuracies = [name for name in ACCURACIES if said["planned"][name]]
    kinds = [f"{mass} {accuracy}" for mass in MASSES for accuracy in accuracies]
    planned = len(MASSES) * sum(said["planned"].values())
    yield choice_section(measured, cheapest(cost), planned, said["columns"], kinds)


def _of_kinds(values: np.ndarray, name: str) -> list[float]:
    """Of ``[solver, mass, accuracy]`` those that were measured for this solver, mass by mass."""
    mine = values[SOLVERS.index(name)].ravel()
    return [float(value) for value in mine if np.isfinite(value)]
