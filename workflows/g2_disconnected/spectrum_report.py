"""The report's section on the deflation spaces: their eigenvalues, and what finding them took."""

from __future__ import annotations

import numpy as np

from pipeline import Store, open_result
from pipeline.declare.coordinates import describe
from pipeline.reading.account import accounts
from pipeline.reading.report import Figure, Section, Table
from stages.loops.loop_figures import spectrum_figure
from workflows.g2_disconnected.schema import G2Disconnected

WORKFLOW = "g2_disconnected"


def spectrum_section(store: Store, parameters: G2Disconnected) -> Section:
    """Eigenvalues of all configurations beside 4 m^2, and a row on each eigensolve."""
    found = open_result(store, "spectrum", workflow=WORKFLOW).load()
    (node,) = (node for node in accounts(store, WORKFLOW) if node.name == "deflation_space")
    rows = []
    for record in node.records:
        said = record["statistics"]
        low, high = said["eigenvalue_range"]
        residuals = (f"{said[name]:.1e}" for name in ("residual_before_rounding", "residual_max"))
        cost = (said["restarts"], said["matvecs"], f"{said['eigensolve_seconds']:.1f}")
        rows.append([describe(record["coordinates"]), f"{low:.4g}", f"{high:.4g}", *cost, *residuals])
    columns = ["configuration", "lowest", "highest", "restarts", "applications", "seconds"]
    table = Table([*columns, "largest residual", "as stored"], rows)
    masses = {"light": parameters.masses.light, "strange": parameters.masses.strange}
    figure = Figure(
        spectrum_figure(found.eigenvalue, masses), "Lowest eigenvalues, a line per configuration."
    )
    remains = "; ".join(
        f"{name}: {_gain(found.eigenvalue.values, mass):.1f}" for name, mass in masses.items()
    )
    text = (
        "Lowest eigenvectors of B = -D_eo D_oe on the even sites, computed once for all masses; the solves "
        "run on A = B + 4 m^2. Residuals are |B v - lambda v|. Without these modes the square root of the "
        f"condition number, to which iterations of CG are proportional, is smaller by a factor of, {remains}."
    )
    return Section("Low modes", text, [figure, table])


def _gain(eigenvalue: np.ndarray, mass: float) -> float:
    """Mean over configurations of sqrt((lambda_k + 4 m^2) / (lambda_1 + 4 m^2))."""
    shifted = eigenvalue + 4 * mass**2
    return float(np.mean(np.sqrt(shifted[:, -1] / shifted[:, 0])))
