"""Nodes of distillation's sources: those of a campaign, and the first ones, which solvers are measured on."""

from __future__ import annotations

from typing import Any

from pipeline import Node, Place, Workflow
from pipeline.declare.coordinates import sorted_unique
from stages.distillation.first_sources import first_sources
from stages.distillation.source_columns import full_columns, stochastic_columns
from stages.lqcd.lattice.geometry import Lattice
from workflows.laph_mesons.schema import LaphMesons


def labels(parameters: LaphMesons) -> list[str]:
    """Of all sources of a configuration."""
    noise = parameters.noise
    marks = [""] if noise is None else [f"n{number}" for number in range(noise.vectors)]
    return [f"t{time}{mark}" for time in parameters.sources.times for mark in marks]


def planned_columns(parameters: LaphMesons, lattice: Lattice) -> int:
    """Right-hand sides of a configuration; sources of currents that share slices with sinks count twice."""
    each = parameters.columns(lattice) // parameters.sources.chunk
    lines = 1 + len(parameters.insertions.separations) if parameters.insertions else 0
    return len(labels(parameters)) * each * (1 + lines)


def add_columns(
    workflow: Workflow,
    parameters: LaphMesons,
    configuration: Node,
    lattice: Lattice,
    name: str = "columns",
    sources: list[str] | None = None,
) -> Node:
    """Which sources there are: eigenvectors, or diluted noise. sources: labels, all unless given."""
    noise = parameters.noise
    place = Place(
        name=name,
        over={"config": configuration.over["config"], "source": sources or labels(parameters)},
        chunk={"source": parameters.sources.chunk},
    )
    common: dict[str, Any] = {
        "time_extent": lattice.time_extent,
        "eigenvectors": parameters.distillation.vectors,
    }
    if noise is None:
        return workflow.add(full_columns, place=place, **common)
    return workflow.add(
        stochastic_columns, place=place, **common, **noise.model_dump(include={"kind", "seed", "dilution"})
    )


def add_first_sources(
    workflow: Workflow, parameters: LaphMesons, operator: Node, basis: Node, lattice: Lattice
) -> Node:
    """The first block of the first chunk of sources."""
    ordered = map(str, sorted_unique("source", labels(parameters)))
    chunk = list(ordered)[: parameters.sources.chunk]
    columns = add_columns(workflow, parameters, operator, lattice, "first_columns", chunk)
    return workflow.add(first_sources, operator, basis, columns, block=parameters.solves.block)
