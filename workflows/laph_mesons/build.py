"""Mesons by distillation: from parameters to a workflow.

configuration -> observables
              -> links, smeared -> laplace_eigenvectors (-> basis) -> elementals
              -> operator; basis, operator, columns -> perambulator or sink_projection
elementals, perambulator or sink_projection -> mesons -> average, levels
operator, basis, columns -> current_insertion, where a file asks for it

With `solver: auto` a first round makes the choice, `workflows.shared.solver_choice`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline import Cost, Node, Place, Workflow
from stages.distillation.distilled_two_point import distilled_mesons, stochastic_mesons
from stages.distillation.laph_average import laph_average, laph_levels
from stages.distillation.laplace_eigenvectors import laplace_basis, laplace_eigenvectors
from stages.distillation.operator_elementals import elementals
from stages.distillation.perambulator import perambulator, sink_projection
from stages.ensemble.configuration import gauge_observables
from stages.ensemble.smeared_links import smeared_links
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import MULTIGRID
from workflows.catalogue import Project
from workflows.g2_disconnected.schema import refuse
from workflows.laph_mesons import footprint as laph_footprint
from workflows.laph_mesons.insertions import add_insertions
from workflows.laph_mesons.schema import LaphMesons, misfits, read_laph_mesons
from workflows.laph_mesons.sources import add_columns, add_first_sources, planned_columns
from workflows.mesons import footprint as meson_footprint
from workflows.parameter_file import ParameterFile
from workflows.shared import footprint
from workflows.shared.ensemble import Configurations, add_configuration, configurations
from workflows.shared.quark import add_hierarchy, add_operator
from workflows.shared.solver_choice import CHOICE, add_choice, campaign_with_choice

NAME = "laph_mesons"
RESULTS = (
    "observables",
    CHOICE,
    "laplace_eigenvectors",
    "elementals",
    "current_insertion",
    "mesons",
    "average",
    "levels",
)
"""Nodes that `quarkline export` writes, where there are any."""


def prepare(file: ParameterFile) -> Project:
    """The workflow of a parameter file, ready to run.

    Raises:
        InputError: a mistake in the file or in the configurations that it names.
    """
    parameters = read_laph_mesons(file)
    ensemble = configurations(file, parameters.ensemble)
    refuse(file, misfits(parameters, ensemble.lattice, len(ensemble.labels)))
    if parameters.solves.solver == "auto":
        return choosing(parameters, ensemble)
    return project_of(parameters, ensemble)


def choosing(parameters: LaphMesons, ensemble: Configurations) -> Project:
    """The project of the round that chooses a solver."""
    workflow, first = Workflow(NAME), replace(ensemble, labels=ensemble.labels[:1])
    configuration = add_configuration(workflow, parameters.ensemble, first)
    lattice, precision = ensemble.lattice, parameters.solves.precision
    links = add_links(workflow, parameters, configuration, lattice)
    basis = add_basis(workflow, parameters, links, lattice)
    operator = add_operator(workflow, parameters.quark, precision, configuration, lattice)
    add_first_choice(workflow, parameters, operator, basis, lattice)
    campaign = partial(project_of, ensemble=ensemble, chosen=parameters)
    follow = partial(campaign_with_choice, parameters, campaign)
    return replace(project_of(parameters, ensemble), workflow=workflow, results=(), follow=follow)


def project_of(parameters: LaphMesons, ensemble: Configurations, chosen: LaphMesons | None = None) -> Project:
    """The project of these parameters; `chosen`: those whose choice of a solver they follow, if they do."""
    from workflows.laph_mesons.rehearsal import rehearse
    from workflows.laph_mesons.report import sections, texts

    workflow = build(parameters, ensemble)
    if chosen:
        nodes = (workflow.nodes["operator"], workflow.nodes["basis"])
        add_first_choice(workflow, chosen, *nodes, ensemble.lattice)
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
    workflow.add(
        gauge_observables, configuration, place=Place(name="observables", cost=Cost(stored=footprint.RECORD))
    )
    links = add_links(workflow, parameters, configuration, lattice)
    basis = add_basis(workflow, parameters, links, lattice)
    made = add_elementals(workflow, parameters, links, basis, lattice)
    columns = add_columns(workflow, parameters, configuration, lattice)
    solved = add_solves(workflow, parameters, configuration, basis, columns, lattice)
    if parameters.insertions:
        add_insertions(workflow, parameters, parameters.insertions, lattice)
    mesons = add_mesons(workflow, parameters, made, columns, solved, lattice)
    add_averages(workflow, parameters, mesons, len(ensemble.labels), lattice)
    return workflow


def add_links(workflow: Workflow, parameters: LaphMesons, configuration: Node, lattice: Lattice) -> Node:
    """Those of the Laplacian and of displacements."""
    return workflow.add(
        smeared_links,
        configuration,
        place=Place(cost=Cost(device_memory=footprint.links_bytes(lattice))),
        **parameters.smearing.model_dump(),
    )


def add_basis(workflow: Workflow, parameters: LaphMesons, links: Node, lattice: Lattice) -> Node:
    """Eigenvectors in the store, by chunks of slices, and all of a configuration where they are used."""
    section = parameters.distillation
    slices = section.slices or lattice.time_extent
    sizes = (section.vectors, section.block, section.precision)
    found = workflow.add(
        laplace_eigenvectors,
        links,
        place=Place(
            over={"time": range(lattice.time_extent)},
            chunk={"time": slices},
            cost=Cost(
                memory=laph_footprint.eigensolve_memory(lattice, slices, *sizes),
                device_memory=laph_footprint.eigensolve_device_memory(lattice, slices, *sizes),
                stored=laph_footprint.vectors_bytes(lattice, slices, section.vectors, section.precision),
            ),
        ),
        **section.model_dump(exclude={"slices"}),
    )
    return workflow.add(
        laplace_basis,
        found,
        place=Place(
            name="basis",
            cost=Cost(
                device_memory=laph_footprint.vectors_bytes(
                    lattice, lattice.time_extent, section.vectors, section.precision
                )
            ),
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
        place=Place(cost=Cost(memory=footprint.PROCESS + held, device_memory=work, stored=stored)),
        momenta=operators.elemental_momenta,
        displacements=operators.displacements,
    )


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
    stored = laph_footprint.projections_bytes(lattice, section.vectors, parameters.columns(lattice))
    return workflow.add(
        sink_projection if parameters.noise else perambulator,
        *upstream,
        place=Place(cost=Cost(**solving_memory(parameters, lattice), stored=stored)),
        **solves.model_dump(),
    )


def solving_memory(parameters: LaphMesons, lattice: Lattice) -> dict[str, Any]:
    """In bytes, of a task that solves, on the host and on a device."""
    section, solves, rhs = parameters.distillation, parameters.solves, parameters.columns(lattice)
    sizes = (lattice, section.vectors, min(solves.block, rhs), solves.solver)
    return {
        "memory": laph_footprint.solving_memory(*sizes, rhs, solves.precision, section.precision),
        "device_memory": laph_footprint.solving_device_memory(*sizes),
    }


def add_first_choice(
    workflow: Workflow, parameters: LaphMesons, operator: Node, basis: Node, lattice: Lattice
) -> None:
    """The solvers on the first columns of the first configuration."""
    add_choice(
        workflow,
        parameters,
        operator,
        add_first_sources(workflow, parameters, operator, basis, lattice),
        lattice,
        planned=planned_columns(parameters, lattice),
        **solving_memory(parameters, lattice),
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
    stored = laph_footprint.correlators_bytes(lattice, sources, *counts[:2])
    cost = Cost(memory=footprint.PROCESS + work, device_memory=work, stored=stored)
    place = Place(name="mesons", cost=cost)
    common: dict[str, Any] = {
        "extents": lattice.extents,
        "displacements": operators.displacements,
        "momenta": operators.momenta,
        "operators": operators.operators,
    }
    if parameters.noise:
        return workflow.add(stochastic_mesons, solved, columns, made, place=place, **common)
    return workflow.add(distilled_mesons, solved, made, place=place, **common)


def add_averages(
    workflow: Workflow, parameters: LaphMesons, mesons: Node, configurations: int, lattice: Lattice
) -> None:
    """Correlators and effective masses, and the levels of all bases."""
    operators, width = parameters.operators, parameters.analysis.jackknife_bin
    momenta = len(operators.momenta)
    workflow.add(
        laph_average,
        mesons,
        place=Place(
            name="average",
            cost=Cost(stored=meson_footprint.meson_average_bytes(lattice, configurations // width, momenta)),
        ),
        momenta=operators.momenta,
        jackknife_bin=width,
    )
    workflow.add(
        laph_levels,
        mesons,
        place=Place(
            name="levels",
            cost=Cost(
                stored=32 * momenta * lattice.time_extent * len(operators.operators) + footprint.RECORD
            ),
        ),
        momenta=operators.momenta,
        operators=operators.operators,
        bases=operators.bases,
        t0=operators.t0,
        jackknife_bin=width,
    )
