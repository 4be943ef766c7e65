"""The disconnected light-strange vector-current correlator: from parameters to a workflow.

configuration -> observables
              -> links -> loops (sloppy for all noise vectors, fine for a few) -> correlator -> average
              -> links -> deflation_space -> deflation (which loops take) -> low_modes
                                          -> spectrum
                                          -> solver_trials

With `solver: auto` a first round measures solvers on the first configuration, see
`workflows.g2_disconnected.choice`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from pipeline import Cost, Node, Place, Workflow
from stages.ensemble.configuration import gauge_observables
from stages.ensemble.staggered_operator import hisq_links, naive_links
from stages.loops.correlator import bootstrap_average, disconnected_correlator, ensemble_average
from stages.lqcd.lattice.geometry import Lattice
from workflows.catalogue import Project
from workflows.g2_disconnected.choice import TRIALS, add_trials, campaign_with_choice
from workflows.g2_disconnected.deflation import add_deflation
from workflows.g2_disconnected.loops import (
    MASSES,
    Upstream,
    add_estimator,
    add_exact_loops,
    add_low_modes,
    operator_of,
)
from workflows.g2_disconnected.schema import (
    G2Disconnected,
    alternatives,
    misfits,
    read_g2_disconnected,
    refuse,
)
from workflows.g2_disconnected.target import Decision, add_contenders, add_target, follow, used_after
from workflows.parameter_file import ParameterFile
from workflows.shared import footprint
from workflows.shared.ensemble import Configurations, add_configuration, configurations

NAME = "g2_disconnected"
RESULTS = (
    "observables",
    TRIALS,
    "spectrum",
    "low_modes",
    "correlator",
    "average",
    "bootstrap",
    "exact_light",
    "exact_strange",
    "noise",
    "allocation",
)


def prepare(file: ParameterFile) -> Project:
    """The workflow of a parameter file, ready to run.

    Raises:
        InputError: a mistake in the file or in the configurations that it names.
    """
    parameters = read_g2_disconnected(file)
    ensemble = configurations(file, parameters.ensemble)
    refuse(file, misfits(parameters, ensemble.lattice, len(ensemble.labels)))
    if parameters.solves.solver == "auto":
        return choosing(ensemble, parameters)
    return project_of(ensemble, parameters)


def choosing(ensemble: Configurations, parameters: G2Disconnected) -> Project:
    """The project of the round that chooses a solver."""
    workflow, first = Workflow(NAME), replace(ensemble, labels=ensemble.labels[:1])
    configuration = add_configuration(workflow, parameters.ensemble, first)
    links = add_links(workflow, parameters, configuration, ensemble.lattice)
    add_trials(workflow, parameters, links, ensemble.lattice)
    campaign = partial(project_of, ensemble, chosen=parameters)
    follow = partial(campaign_with_choice, parameters, campaign)
    return replace(project_of(ensemble, parameters), workflow=workflow, results=(), follow=follow)


def project_of(
    ensemble: Configurations,
    parameters: G2Disconnected,
    earlier: tuple[Decision, ...] = (),
    chosen: G2Disconnected | None = None,
) -> Project:
    """The project of these counts; with a target that of one round, after what `earlier` ones decided.

    chosen: the parameters whose choice of a solver these follow, if they do.
    """
    from workflows.g2_disconnected.rehearsal import rehearse
    from workflows.g2_disconnected.report import sections, texts

    workflow = build(parameters, ensemble, earlier)
    if chosen:
        add_trials(workflow, chosen, workflow.nodes["links"], ensemble.lattice)
    remake = partial(project_of, ensemble, chosen=chosen)
    return Project(
        title="Disconnected vector current: light, strange, light minus strange",
        workflow=workflow,
        store=Path(parameters.store).expanduser(),
        report=Path(parameters.report).expanduser(),
        results=[name for name in RESULTS if name in workflow.nodes],
        sections=partial(sections, parameters),
        texts=partial(texts, parameters),
        rehearse=partial(rehearse, parameters, ensemble.lattice),
        follow=partial(follow, parameters, earlier, remake) if parameters.target else None,
    )


def build(
    parameters: G2Disconnected, ensemble: Configurations, earlier: tuple[Decision, ...] = ()
) -> Workflow:
    """All nodes, wired; `earlier` is what rounds before this one decided."""
    workflow, lattice = Workflow(NAME), ensemble.lattice
    configuration = add_configuration(workflow, parameters.ensemble, ensemble)
    workflow.add(
        gauge_observables, configuration, place=Place(name="observables", cost=Cost(stored=footprint.RECORD))
    )
    links = add_links(workflow, parameters, configuration, lattice)
    deflation = (
        add_deflation(workflow, parameters.deflation, links, lattice, used_after(earlier))
        if parameters.deflation
        else None
    )
    modes = add_low_modes(workflow, parameters, deflation, lattice)
    upstream = Upstream(links, deflation, modes)
    loops = add_estimator(workflow, parameters, upstream, lattice)
    for name, changed in alternatives(parameters):
        add_estimator(workflow, changed, upstream, lattice, f"{name}_")
    if parameters.exact:
        for mass in MASSES:
            add_exact_loops(workflow, parameters, links, lattice, mass)
    correlator = workflow.add(
        disconnected_correlator,
        *loops,
        place=Place(name="correlator", cost=Cost(stored=footprint.correlator_bytes(lattice))),
    )
    if parameters.target:
        add_target(workflow, parameters.target, lattice, loops, correlator, earlier)
        if not earlier:
            add_contenders(workflow, parameters, links, correlator, lattice)
    add_averages(workflow, parameters, correlator, ensemble)
    return workflow


def add_links(workflow: Workflow, parameters: G2Disconnected, configuration: Node, lattice: Lattice) -> Node:
    """The fermion's operator."""
    links = parameters.links
    kept = footprint.operator_device_memory(lattice, *operator_of(parameters))
    place = Place(name="links", cost=Cost(device_memory=kept))
    if links.action == "naive":
        return workflow.add(naive_links, configuration, place=place, boundary=links.boundary)
    options = {"naik_epsilon": links.naik_epsilon, "boundary": links.boundary}
    return workflow.add(hisq_links, configuration, place=place, **options)


def add_averages(
    workflow: Workflow, parameters: G2Disconnected, correlator: Node, ensemble: Configurations
) -> None:
    """Ensemble averages with jackknife errors, and with bootstrap errors where asked for."""
    width, bootstrap, lattice = (
        parameters.analysis.jackknife_bin,
        parameters.analysis.bootstrap,
        ensemble.lattice,
    )
    workflow.add(
        ensemble_average,
        correlator,
        place=Place(
            name="average", cost=Cost(stored=footprint.average_bytes(lattice, len(ensemble.labels) // width))
        ),
        jackknife_bin=width,
    )
    if bootstrap:
        workflow.add(
            bootstrap_average,
            correlator,
            place=Place(
                name="bootstrap", cost=Cost(stored=footprint.average_bytes(lattice, bootstrap.samples))
            ),
            jackknife_bin=width,
            **bootstrap.model_dump(),
        )
