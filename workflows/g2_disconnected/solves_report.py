"""Sections of the report on solves: their cost, the choice of the solver, and low modes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pipeline.reading.account import NodeAccount
from pipeline.reading.report import Details, Figure, Section, Table
from stages.loops.loop_figures import convergence_figure


def solves_section(nodes: Sequence[NodeAccount]) -> Section:
    """Iterations, residuals and cost of the linear systems."""
    rows = []
    for node in nodes:
        iterations = [number for block in node.statistics("iterations") for number in block]
        rhs = sum(node.statistics("rhs"))
        tolerance = node.records[0].parameters["tolerance"]
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
    solves = {node.name: node.records[0].statistics for node in nodes}
    figure = Figure(convergence_figure(solves), "The first block of right-hand sides of each kind of solve.")
    text = (
        "Residuals are |b - A x| / |b|, recomputed in double precision, the largest of all right-hand sides."
    )
    return Section("Solves", text, [figure, table, *_choices(nodes)])


def _choices(nodes: Sequence[NodeAccount]) -> list[Details]:
    """Launch shapes that solves took from measurements on their device: they may alter rounding, no more."""
    used = {choice for node in nodes for chunk in node.statistics("kernel_choices") for choice in chunk}
    lines = "\n".join(sorted(used))
    return [Details("Launch shapes of GPU kernels chosen by `quarkline tune`", lines)] if used else []
