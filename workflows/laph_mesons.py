"""Mesons by distillation: from parameters to a workflow.

configuration -> observables
              -> links, smeared -> laplace_eigenvectors (-> basis) -> elementals
              -> operator; basis, operator, columns -> perambulator or sink_projection
elementals, perambulator or sink_projection -> mesons -> average, levels
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from pipeline import Node, Workflow
from stages.configuration import gauge_observables
from stages.distillation_columns import full_columns, stochastic_columns
from stages.elementals import elementals
from stages.laph_average import laph_average, laph_levels
from stages.laph_mesons import distilled_mesons, stochastic_mesons
from stages.laplace_eigenvectors import laplace_basis, laplace_eigenvectors
from stages.lattice.geometry import Lattice
from stages.perambulator import perambulator, sink_projection
from stages.smeared_links import smeared_links
from stages.spectroscopy.methods import MULTIGRID
from workflows import footprint, laph_footprint, meson_footprint
from workflows.catalogue import Project
from workflows.ensemble import Configurations, add_configuration, configurations
from workflows.laph_schema import LaphMesons, LaphNoise, misfits, read_laph_mesons
from workflows.parameter_file import ParameterFile
from workflows.schema import refuse
from workflows.wilson_nodes import add_hierarchy, add_operator

NAME = "laph_mesons"
RESULTS = ("observables", "laplace_eigenvectors", "elementals", "mesons", "average", "levels")
"""Nodes that `quarkline export` writes, where there are any."""


def prepare(file: ParameterFile) -> Project:
    """The workflow of a parameter file, ready to run.

    Raises:
        InputError: a mistake in the file or in the configurations that it names.
    """
    from workflows.laph_rehearsal import rehearse
    from workflows.laph_report import sections, texts

    parameters = read_laph_mesons(file)
    ensemble = configurations(file, parameters.ensemble)
    refuse(file, misfits(parameters, ensemble.lattice, len(ensemble.labels)))
    workflow = build(parameters, ensemble)
    return Project(
        title="Mesons by distillation: perambulators in the space of the lowest Laplace eigenvectors",
        workflow=workflow,
        store=Path(parameters.store).expanduser(),
        report=Path(parameters.report).expanduser(),
        results=[name for name in RESULTS if name in workflow.nodes],
        sections=partial(sections, parameters),
        texts=partial(texts, parameters),
        rehearse=partial(rehearse, parameters, ensemble.lattice),
    )


def build(parameters: LaphMesons, ensemble: Configurations) -> Workflow:
    """All nodes, wired."""
    workflow, lattice = Workflow(NAME), ensemble.lattice
    configuration = add_configuration(workflow, parameters.ensemble, ensemble)
    workflow.add(gauge_observables, configuration, name="observables", stored=footprint.RECORD)
    links = workflow.add(
        smeared_links,
        configuration,
        device_memory=footprint.links_bytes(lattice),
        **parameters.smearing.model_dump(),
    )
    basis = add_basis(workflow, parameters, links, lattice)
    made = add_elementals(workflow, parameters, links, basis, lattice)
    columns = add_columns(workflow, parameters, configuration, lattice)
    solved = add_solves(workflow, parameters, configuration, basis, columns, lattice)
    mesons = add_mesons(workflow, parameters, made, columns, solved, lattice)
    add_averages(workflow, parameters, mesons, len(ensemble.labels), lattice)
    return workflow


def add_basis(workflow: Workflow, parameters: LaphMesons, links: Node, lattice: Lattice) -> Node:
    """Eigenvectors in the store, by chunks of slices, and all of a configuration where they are used."""
    section = parameters.distillation
    slices = section.slices or lattice.time_extent
    sizes = (section.vectors, section.block, section.precision)
    found = workflow.add(
        laplace_eigenvectors,
        links,
        over={"time": range(lattice.time_extent)},
        chunk={"time": slices},
        memory=laph_footprint.eigensolve_memory(lattice, slices, *sizes),
        device_memory=laph_footprint.eigensolve_device_memory(lattice, slices, *sizes),
        stored=laph_footprint.vectors_bytes(lattice, slices, section.vectors, section.precision),
        **section.model_dump(exclude={"slices"}),
    )
    return workflow.add(
        laplace_basis,
        found,
        name="basis",
        device_memory=laph_footprint.vectors_bytes(
            lattice, lattice.time_extent, section.vectors, section.precision
        ),
        time_extent=lattice.time_extent,
    )


def add_elementals(
    workflow: Workflow, parameters: LaphMesons, links: Node, basis: Node, lattice: Lattice
) -> Node:
    """Of all momenta and displacements."""
    section, operators = parameters.distillation, parameters.operators
    counts = (len(operators.momenta), len(operators.displacements), section.vectors)
    work = laph_footprint.elementals_device_memory(lattice, section.vectors, section.precision)
    stored = laph_footprint.elementals_bytes(lattice, *counts)
    held = footprint.links_bytes(lattice) * footprint.LINK_FIELDS + 2 * work + stored
    return workflow.add(
        elementals,
        links,
        basis,
        memory=footprint.PROCESS + held,
        device_memory=work,
        stored=stored,
        momenta=operators.elemental_momenta,
        displacements=operators.displacements,
    )


def add_columns(workflow: Workflow, parameters: LaphMesons, configuration: Node, lattice: Lattice) -> Node:
    """Which sources there are: eigenvectors, or diluted noise."""
    sources, noise = parameters.sources, parameters.noise
    labels = [f"t{time}{mark}" for time in sources.times for mark in _marks(noise)]
    common: dict[str, Any] = {
        "name": "columns",
        "over": {"config": configuration.over["config"], "source": labels},
        "chunk": {"source": sources.chunk},
        "time_extent": lattice.time_extent,
        "eigenvectors": parameters.distillation.vectors,
    }
    if noise is None:
        return workflow.add(full_columns, **common)
    return workflow.add(
        stochastic_columns, **common, **noise.model_dump(include={"kind", "seed", "dilution"})
    )


def _marks(noise: LaphNoise | None) -> list[str]:
    return [""] if noise is None else [f"n{number}" for number in range(noise.vectors)]


def add_solves(
    workflow: Workflow,
    parameters: LaphMesons,
    configuration: Node,
    basis: Node,
    columns: Node,
    lattice: Lattice,
) -> Node:
    """Perambulators of all source times, or projections of all noise."""
    section, solves = parameters.distillation, parameters.solves
    operator = add_operator(workflow, parameters.quark, solves.precision, configuration, lattice)
    upstream = [operator, basis, columns]
    if solves.solver == MULTIGRID:
        upstream.append(add_hierarchy(workflow, parameters.multigrid, solves.precision, operator, lattice))
    rhs, sizes = parameters.columns(lattice), (lattice, section.vectors, solves.block)
    return workflow.add(
        sink_projection if parameters.noise else perambulator,
        *upstream,
        memory=laph_footprint.solving_memory(*sizes, rhs, solves.precision, section.precision),
        device_memory=laph_footprint.solving_device_memory(*sizes),
        stored=laph_footprint.projections_bytes(lattice, section.vectors, rhs),
        **solves.model_dump(),
    )


def add_mesons(
    workflow: Workflow, parameters: LaphMesons, made: Node, columns: Node, solved: Node, lattice: Lattice
) -> Node:
    """Two-point functions: of each source, or of all pairs of noise vectors of a configuration."""
    operators, k = parameters.operators, parameters.distillation.vectors
    counts = (len(operators.momenta), len(operators.operators), len(operators.displacements))
    sources = parameters.sources.chunk
    if noise := parameters.noise:
        sources = len(parameters.sources.times) * noise.vectors * (noise.vectors - 1) // 2
    work = laph_footprint.contraction_memory(lattice, k, parameters.columns(lattice), *counts)
    common: dict[str, Any] = {
        "name": "mesons",
        "memory": footprint.PROCESS + work,
        "device_memory": work,
        "stored": laph_footprint.correlators_bytes(lattice, sources, *counts[:2]),
        "extents": lattice.extents,
        "displacements": operators.displacements,
        "momenta": operators.momenta,
        "operators": operators.operators,
    }
    if parameters.noise:
        return workflow.add(stochastic_mesons, solved, columns, made, **common)
    return workflow.add(distilled_mesons, solved, made, **common)


def add_averages(
    workflow: Workflow, parameters: LaphMesons, mesons: Node, configurations: int, lattice: Lattice
) -> None:
    """Correlators and effective masses, and the levels of all bases."""
    operators, width = parameters.operators, parameters.analysis.jackknife_bin
    momenta = len(operators.momenta)
    workflow.add(
        laph_average,
        mesons,
        name="average",
        stored=meson_footprint.meson_average_bytes(lattice, configurations // width, momenta),
        momenta=operators.momenta,
        jackknife_bin=width,
    )
    workflow.add(
        laph_levels,
        mesons,
        name="levels",
        stored=32 * momenta * lattice.time_extent * len(operators.operators) + footprint.RECORD,
        momenta=operators.momenta,
        operators=operators.operators,
        bases=operators.bases,
        t0=operators.t0,
        jackknife_bin=width,
    )
