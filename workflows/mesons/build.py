"""Wilson-clover propagators and meson two-point functions: from parameters to a workflow.

configuration -> observables
              -> operator, sources -> propagator (-> kept_propagator) -> mesons -> average
                                   -> solver_choice

With `solver: auto` a first round makes the choice, `workflows.shared.solver_choice`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline import Cost, Node, Place, Workflow
from pipeline.declare.coordinates import sorted_unique
from stages.ensemble.configuration import gauge_observables
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import MULTIGRID
from stages.mesons import sources as source_stages
from stages.mesons.propagator import kept_propagator, propagator
from stages.mesons.two_point import meson_average, meson_two_point
from workflows.catalogue import Project
from workflows.g2_disconnected.schema import refuse
from workflows.mesons import footprint as meson_footprint
from workflows.mesons.schema import Mesons, SourceSection, misfits, read_mesons
from workflows.mesons.sources import Campaign, campaign
from workflows.parameter_file import ParameterFile
from workflows.shared import footprint
from workflows.shared.ensemble import Configurations, add_configuration, configurations
from workflows.shared.quark import add_hierarchy, add_operator
from workflows.shared.solver_choice import CHOICE, add_choice, campaign_with_choice

NAME = "mesons"
RESULTS = ("observables", CHOICE, "mesons", "average", "kept_propagator")
"""Nodes that `quarkline export` writes, where there are any."""


def prepare(file: ParameterFile) -> Project:
    """The workflow of a parameter file, ready to run.

    Raises:
        InputError: a mistake in the file, in the configurations or in the sources that it names.
    """
    parameters = read_mesons(file)
    ensemble = configurations(file, parameters.ensemble)
    refuse(file, misfits(parameters, ensemble.lattice, len(ensemble.labels)))
    work = campaign(file, parameters.sources, ensemble.lattice)
    if parameters.solves.solver == "auto":
        return choosing(parameters, ensemble, work)
    return project_of(parameters, ensemble, work)


def choosing(parameters: Mesons, ensemble: Configurations, work: Campaign) -> Project:
    """The project of the round that chooses a solver."""
    workflow, first = Workflow(NAME), replace(ensemble, labels=ensemble.labels[:1])
    configuration = add_configuration(workflow, parameters.ensemble, first)
    quark, precision = parameters.quark, parameters.solves.precision
    operator = add_operator(workflow, quark, precision, configuration, ensemble.lattice)
    add_first_choice(workflow, parameters, configuration, operator, ensemble.lattice, work)
    campaign = partial(project_of, ensemble=ensemble, work=work, chosen=parameters)
    follow = partial(campaign_with_choice, parameters, campaign)
    return replace(project_of(parameters, ensemble, work), workflow=workflow, results=(), follow=follow)


def project_of(
    parameters: Mesons, ensemble: Configurations, work: Campaign, chosen: Mesons | None = None
) -> Project:
    """The project of these parameters; `chosen`: those whose choice of a solver they follow, if they do."""
    from workflows.mesons.rehearsal import rehearse
    from workflows.mesons.report import sections, texts

    workflow = build(parameters, ensemble, work)
    if chosen:
        nodes = (workflow.nodes["configuration"], workflow.nodes["operator"])
        add_first_choice(workflow, chosen, *nodes, ensemble.lattice, work)
    return Project(
        title="Wilson-clover propagators and meson two-point functions",
        workflow=workflow,
        store=Path(parameters.store).expanduser(),
        report=Path(parameters.report).expanduser(),
        results=[name for name in RESULTS if name in workflow.nodes],
        sections=partial(sections, parameters),
        texts=partial(texts, parameters),
        rehearse=partial(rehearse, parameters, ensemble.lattice, work.columns),
    )


def build(parameters: Mesons, ensemble: Configurations, work: Campaign) -> Workflow:
    """All nodes, wired."""
    workflow, lattice = Workflow(NAME), ensemble.lattice
    configuration = add_configuration(workflow, parameters.ensemble, ensemble)
    workflow.add(
        gauge_observables, configuration, place=Place(name="observables", cost=Cost(stored=footprint.RECORD))
    )
    quark, precision = parameters.quark, parameters.solves.precision
    operator = add_operator(workflow, quark, precision, configuration, lattice)
    sources = add_sources(workflow, parameters.sources, configuration, work)
    solved = add_propagator(workflow, parameters, operator, sources, lattice, work)
    momenta = parameters.mesons.momenta
    mesons = workflow.add(
        meson_two_point,
        solved,
        place=Place(
            name="mesons",
            cost=Cost(
                memory=_memory(parameters, lattice, work),
                device_memory=_device_memory(parameters, lattice, work),
                stored=meson_footprint.correlators_bytes(lattice, parameters.sources.chunk, len(momenta)),
            ),
        ),
        extents=lattice.extents,
        momenta=momenta,
    )
    width = parameters.analysis.jackknife_bin
    samples = len(ensemble.labels) // width
    workflow.add(
        meson_average,
        mesons,
        place=Place(
            name="average",
            cost=Cost(stored=meson_footprint.meson_average_bytes(lattice, samples, len(momenta))),
        ),
        momenta=momenta,
        jackknife_bin=width,
    )
    return workflow


def add_sources(
    workflow: Workflow, section: SourceSection, configuration: Node, work: Campaign, name: str = "sources"
) -> Node:
    """The sources of a section, by their kind."""
    options: dict[str, Any] = {}
    if section.smearing:
        options = section.smearing.model_dump()
    if section.noise:
        options = {"seed": section.noise.seed}
    return workflow.add(
        getattr(source_stages, f"{section.kind}_sources"),
        configuration,
        place=Place(
            name=name,
            over={"source": work.sources},
            chunk={"source": section.chunk},
            files={"path": work.files} if work.files else {},
        ),
        **options,
    )


def add_first_choice(
    workflow: Workflow,
    parameters: Mesons,
    configuration: Node,
    operator: Node,
    lattice: Lattice,
    work: Campaign,
) -> None:
    """The solvers on the first chunk of sources of the first configuration."""
    section = parameters.sources
    ordered = map(str, sorted_unique("source", work.sources))
    first = replace(work, sources=tuple(ordered)[: section.chunk])
    add_choice(
        workflow,
        parameters,
        operator,
        add_sources(workflow, section, configuration, first, "first_sources"),
        lattice,
        planned=len(work.sources) * work.columns,
        memory=_memory(parameters, lattice, work),
        device_memory=_device_memory(parameters, lattice, work),
    )


def add_propagator(
    workflow: Workflow,
    parameters: Mesons,
    operator: Node,
    sources: Node,
    lattice: Lattice,
    work: Campaign,
) -> Node:
    """What mesons are made of: propagators in memory, or those that are kept."""
    upstream = [operator, sources]
    if parameters.solves.solver == MULTIGRID:
        precision = parameters.solves.precision
        upstream.append(add_hierarchy(workflow, parameters.multigrid, precision, operator, lattice))
    solved = workflow.add(propagator, *upstream, **parameters.solves.model_dump())
    if not parameters.keep_propagators:
        return solved
    columns = work.columns * parameters.sources.chunk
    return workflow.add(
        kept_propagator,
        solved,
        place=Place(
            cost=Cost(
                memory=_memory(parameters, lattice, work),
                device_memory=_device_memory(parameters, lattice, work),
                stored=meson_footprint.propagator_bytes(lattice, columns),
            )
        ),
    )


def _memory(parameters: Mesons, lattice: Lattice, work: Campaign) -> int:
    """Of a task that solves."""
    solves, columns = parameters.solves, work.columns * parameters.sources.chunk
    return meson_footprint.propagating_memory(lattice, solves.precision, columns, solves.block, solves.solver)


def _device_memory(parameters: Mesons, lattice: Lattice, work: Campaign) -> int:
    solves, columns = parameters.solves, work.columns * parameters.sources.chunk
    return meson_footprint.propagating_device_memory(lattice, columns, solves.block, solves.solver)
