"""Report of the workflow `mesons`: correlators, effective masses, solves, gauge fields."""

from __future__ import annotations

from functools import partial

from pipeline import Section, Store
from workflows import (
    available,
    choice_sections,
    correlator_section,
    correlator_texts,
    gauge_section,
    loaded,
    mass_section,
    neutral_sections,
    setup_sections,
    solves_of,
    solves_section,
)
from workflows.mesons.schema import MesonParameters


def sections(parameters: MesonParameters, store: Store) -> list[Section]:
    """The sections of a finished run."""
    workflow = parameters.workflow
    average = partial(loaded, store, workflow, "average")
    return available(
        lambda: correlator_section(average(), store, workflow),
        lambda: mass_section(average()),
        *neutral_sections(parameters.mesons.flavours, store, workflow),
        lambda: solves_section(list(solves_of(store, workflow, "propagator")), parameters.solves.tolerance),
        lambda: setup_sections(store, workflow),
        lambda: choice_sections(store, workflow),
        lambda: gauge_section(store, workflow),
    )


def texts(parameters: MesonParameters, store: Store) -> dict[str, str]:
    """Text files beside the page: all correlators with all their digits, for plotting programs."""
    return correlator_texts(parameters.mesons.flavours, store, parameters.workflow)
