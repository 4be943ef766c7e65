"""Sections that reports on mesons share: correlators and effective masses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray

from pipeline import Figure, Section, Store, Table, counted, open_result, value_with_error
from pipeline.reading.result import IncompleteError
from stages.lqcd.spectroscopy.little_group import of_family
from stages.mesons.meson_figures import effective_mass_figure, meson_figure
from workflows.shared.report_sections import average_text, degrees_of_freedom, errors_in, loaded, with_errors

MEMBERS = (
    "Each channel is the mean over the Dirac matrices that belong to it, at p != 0 over those that are "
    "related by rotations and reflections that keep p. All matrices"
)
"""Correlators that make a channel."""
NEUTRAL, PREFIX = "Neutral mesons, connected part:", "neutral_"
NO_LOOPS = "flavour-non-singlet mesons have no quark-line disconnected part"
WITHOUT_LOOPS = "means over up and down, without the quark-line disconnected part of neutral mesons"
MASSES = (
    "cosh m(t) = [C(t - 1) + C(t + 1)] / [2 C(t)], which is exact for one state, forwards and backwards. "
)
"""Definition of effective masses."""


def correlator_section(
    average: xarray.Dataset,
    store: Store,
    workflow: str,
    of: str = "",
    members: str = MEMBERS,
    prefix: str = "",
) -> Section:
    """C(t) of the channels at each momentum, drawn at the first one; of: a further sentence on them.

    members: what channels are made of. prefix: of the names of results and files of neutral mesons.
    """
    tables = []
    for number, momentum in enumerate(average.momentum.values):
        each = average.isel(momentum=number, channel=_existing(average, number))
        columns = [
            with_errors(values, errors)
            for values, errors in zip(each.channel_correlator.values, each.channel_error.values, strict=True)
        ]
        rows = list(zip(range(each.sizes["time"]), *columns, strict=True))
        names = [str(name) for name in each.channel.values]
        tables.append(Table(["t/a", *names], rows, f"C(t) at p = {momentum_text(momentum)}"))
    first = average.isel(momentum=0, channel=_existing(average, 0))
    sizes = open_result(store, "mesons", workflow=workflow).sizes
    errors = errors_in(average.channel_error.values, freedom=degrees_of_freedom(store, workflow))
    text = (
        f"Means over {counted(sizes['source'], 'source')} and {counted(sizes['config'], 'configuration')} "
        f"with {errors}; t counts from the source. {members} at all "
        f"momenta are in {prefix}mesons.txt. {of}Lattice units, without renormalisation; "
        f"{WITHOUT_LOOPS if prefix else NO_LOOPS}."
    )
    figure = Figure(
        meson_figure(first.channel_correlator, first.channel_error, list(map(str, first.channel.values))),
        f"C(t) at p = {momentum_text(average.momentum.values[0])}, "
        f"{errors_in(first.channel_error.values, first.channel_correlator.values)}"
        f"{'; triangles: negative C(t)' * bool((first.channel_correlator < 0).any())}.",
    )
    return Section("Meson correlators", text, [figure, *tables])


def neutral_sections(
    flavours: Sequence[str], store: Store, workflow: str, of: str = ""
) -> list[Callable[[], Section]]:
    """Sections of the connected part of neutral mesons of a twisted doublet, where a file asks for them."""
    if "neutral" not in flavours:
        return []
    average = partial(loaded, store, workflow, "neutral_average")
    section = partial(correlator_section, store=store, workflow=workflow, of=of, prefix=PREFIX)
    return [
        lambda: replace(section(average()), title=f"{NEUTRAL} correlators"),
        lambda: replace(mass_section(average()), title=f"{NEUTRAL} masses"),
    ]


def mass_section(
    average: xarray.Dataset, names: Sequence[str] = ("pion", "rho"), masses: str = MASSES
) -> Section:
    """Effective masses of some channels, and effective energies at the other momenta; masses: how defined."""
    known, times = list(map(str, average.channel.values)), average.sizes["time"]
    chosen = [
        (known.index(channel), number)
        for name in names
        for number in range(average.sizes["momentum"])
        for channel in of_family(name, [known[k] for k in _existing(average, number)])
    ]
    labels = [f"{known[k]}, p = {momentum_text(average.momentum.values[p])}" for k, p in chosen]
    mass, error = (
        np.array([average[name].values[place] for place in chosen])
        for name in ("effective_mass", "effective_mass_error")
    )
    rows = [
        [t, *(mass_text(float(m), float(e)) for m, e in zip(mass[:, t], error[:, t], strict=True))]
        for t in range(1, times // 2 + 1)
    ]
    text = f"{masses}It tends to the ground state's energy as t grows."
    caption = f"Effective masses, {errors_in(error, mass)}."
    figure = Figure(effective_mass_figure(mass, error, labels), caption)
    return Section("Effective masses", text, [figure, Table(["t/a", *labels], rows)])


def _existing(average: xarray.Dataset, momentum: int) -> list[int]:
    """Numbers of the channels that there are at a momentum."""
    values = average.channel_correlator.values[:, momentum]
    return [number for number, each in enumerate(values) if not np.isnan(each).all()]


def correlator_text(store: Store, workflow: str, axis: str = "gamma", prefix: str = "") -> str:
    """All correlators at all momenta with all their digits, for plotting programs; axis: of operators."""
    average = loaded(store, workflow, f"{prefix}average")
    names = [f"{g} p={momentum_text(p)}" for g in average[axis].values for p in average.momentum.values]
    return average_text(store, workflow, names, prefix)


def correlator_texts(flavours: Sequence[str], store: Store, workflow: str) -> dict[str, str]:
    """`correlator_text` by file: of charged mesons, and of neutral ones where a file asks for them."""
    texts = {}
    for prefix in ("", PREFIX) if "neutral" in flavours else ("",):
        with suppress(IncompleteError):
            texts[f"{prefix}mesons.txt"] = correlator_text(store, workflow, prefix=prefix)
    return texts


def mass_text(mass: float, error: float) -> str | None:
    """None where there is no effective mass."""
    return value_with_error(mass, error) if np.isfinite(mass) else None


def momentum_text(momentum: Any) -> str:
    return ",".join(str(int(n)) for n in momentum)
