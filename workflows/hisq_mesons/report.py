"""Report of the workflow `hisq_mesons`: correlators, effective masses, solves, gauge fields."""

from __future__ import annotations

from functools import partial

from pipeline import Section, Store
from workflows import (
    available,
    choice_sections,
    correlator_section,
    correlator_text,
    gauge_section,
    loaded,
    mass_section,
    solves_of,
    solves_section,
    spectrum_section,
)
from workflows.hisq_mesons.schema import HisqMesonParameters

MEMBERS = (
    "Each channel is the mean over the spin-taste operators that belong to it, at p != 0 over those "
    "that are related by rotations and reflections that keep p. All operators"
)
MASSES = (
    "cosh m(t) = [S(t - 1) + S(t + 1)] / [2 S(t)] of S(t) = [C(t - 1) + 2 C(t) + C(t + 1)] / 4, in "
    "which the partner of other parity, -(-1)^t exp(-m' t), is suppressed by (1 - cosh m') / (1 + cosh m). "
)


def sections(parameters: HisqMesonParameters, store: Store) -> list[Section]:
    """The sections of a finished run."""
    workflow = parameters.workflow
    average = partial(loaded, store, workflow, "average")
    solved = partial(solves_of, store, workflow, "staggered_propagator")
    masses = {"quark": parameters.quark.mass}
    return available(
        lambda: correlator_section(average(), store, workflow, members=MEMBERS),
        lambda: mass_section(average(), parameters.mesons.operators, MASSES),
        lambda: solves_section(list(solved()), parameters.solves.tolerance),
        lambda: choice_sections(store, workflow),
        lambda: spectrum_section(store, workflow, masses) if parameters.deflation else (),
        lambda: gauge_section(store, workflow),
    )


def texts(parameters: HisqMesonParameters, store: Store) -> dict[str, str]:
    """Text files beside the page: all correlators with all their digits, for plotting programs."""
    return {"mesons.txt": correlator_text(store, parameters.workflow, "operator")}
