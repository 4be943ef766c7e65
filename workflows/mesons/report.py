"""Report of the workflow `mesons`: correlators, effective masses, solves, gauge fields."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from pipeline import Store, open_result
from pipeline.reading.account import accounts
from pipeline.reading.report import Section
from workflows.mesons.schema import MesonParameters
from workflows.shared.meson_sections import (
    choice_sections,
    correlator_section,
    correlator_text,
    mass_section,
    setup_sections,
    solves_section,
)
from workflows.shared.report_sections import available, gauge_section


def sections(parameters: MesonParameters, store: Store) -> list[Section]:
    """The sections of a finished run."""
    workflow = parameters.workflow
    average = partial(open_result, store, "average", workflow=workflow)
    return available(
        lambda: correlator_section(average().load(), store, workflow),
        lambda: mass_section(average().load()),
        lambda: solves_section(list(_solves(store, workflow)), parameters.solves.tolerance),
        lambda: setup_sections(store, workflow),
        lambda: choice_sections(store, workflow),
        lambda: gauge_section(store, workflow),
    )


def texts(parameters: MesonParameters, store: Store) -> dict[str, str]:
    """Text files beside the page: all correlators with all their digits, for plotting programs."""
    return {"mesons.txt": correlator_text(store, parameters.workflow)}


def _solves(store: Store, workflow: str) -> Iterator[dict[str, Any]]:
    """Records of the solves of each chunk of propagators: kept with what was made of it."""
    seen = set()
    for node in accounts(store, workflow):
        for record in node.records:
            for each in record["transient"]:
                if each["stage"] == "propagator" and each["key"] not in seen:
                    seen.add(each["key"])
                    yield each["statistics"]
