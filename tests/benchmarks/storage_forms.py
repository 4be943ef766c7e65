"""Errors of the Wilson dslash by the form of links and fields, as in Fig. 6 of arXiv:0911.3191."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from script import PrintedTable
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.kernels import short_numbers
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.link_forms import WilsonForm
from stages.lqcd.kernels.wilson_dslash import PackedLinks, pack_fields, wilson_dslash
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from workflows.benchmarks.machine import Machine, random_field
from workflows.benchmarks.speed import DTYPES

WHOLE, TO_SINGLE, HALF = "whole", "16 bits, result in single", "16 bits"
"""Forms of fields: in the precision of the links, or in 16 bits with a scale per site."""

SHARES = {"50 %": 0.5, "90 %": 0.9, "99 %": 0.99, "99.9 %": 0.999, "largest": 1.0}
SPACING = 4
"""Sites between sources of one number: each site of the result hears of one source only."""


def error_table(machine: Machine, M: WilsonOperator) -> None:
    """Print quantiles of the errors of D on the even sites, from double with 18 reals.

    Of matrix elements, which are results on sources of one number, and of the numbers of D psi, psi uniformly
    random; in units of the root mean square of the exact ones. What has to vanish is left out.
    """
    table, xp = PrintedTable("links", "reals", "fields", "numbers of", "rms", *SHARES), machine.xp
    shape = M.lattice.half_volume, COMPONENTS, COMPONENTS
    operands = {"elements": point_sources(machine, M.lattice), "D psi": random_field(machine, shape, complex)}
    links = dict(packed_links(machine, M))
    reference = links.pop(("double", WilsonForm.MATRICES))
    for kind, x in operands.items():
        exact = result(reference, x, WHOLE)
        there = exact != 0
        unit = xp.sqrt((abs(exact[there]) ** 2).mean())
        for (precision, form), packed in links.items():
            for fields in (WHOLE, TO_SINGLE, HALF) if precision == "single" else (WHOLE,):
                errors = abs((result(packed, x, fields) - exact)[there]) / unit
                rms = float(xp.sqrt((errors**2).mean()))
                ordered = xp.sort(errors)
                quantiles = (float(ordered[int(share * (ordered.size - 1))]) for share in SHARES.values())
                table.add(precision, form.value, fields, kind, rms, *quantiles)


def packed_links(machine: Machine, M: WilsonOperator) -> Iterator[tuple[tuple[str, WilsonForm], PackedLinks]]:
    """Links into the even sites by precision and form: on a GPU also the two rows of SU(3)."""
    forms = (
        (WilsonForm.MATRICES, WilsonForm.TWO_ROWS) if machine.backend == "cuda" else (WilsonForm.MATRICES,)
    )
    fields = M.links.links, M.links.anisotropy.weights, M.lattice, EVEN
    for precision, form in product(DTYPES, forms):
        yield (precision, form), pack_fields(*fields, DTYPES[precision], form)


def point_sources(machine: Machine, lattice: Lattice) -> Array:
    """Sources ``[site, 12, 12]`` on the odd sites: a one in each component, on every fourth site each way."""
    first, extents = np.array((1, 0, 0, 0)), np.array(lattice.extents)
    steps = lattice.coordinates(ODD) - first
    chosen = ((steps % SPACING == 0) & (steps >= 0) & (steps + SPACING <= extents)).all(axis=1)
    points = machine.xp.zeros((lattice.half_volume, COMPONENTS, COMPONENTS), complex)
    points[to_device_like(np.flatnonzero(chosen), points)] = machine.xp.eye(COMPONENTS)
    return points


def result(links: PackedLinks, x: Array, fields: str) -> Array:
    """D x ``[site, 12, N]`` in complex128, by these links and form of fields."""
    whole = x.astype(links.dtype)
    if fields == WHOLE:
        return wilson_dslash(links, whole, field_like(whole)).astype(complex)
    half: Any = short_numbers.to_half(whole)
    if fields == TO_SINGLE:
        return wilson_dslash(links, half, field_like(whole)).astype(complex)
    return short_numbers.from_half(wilson_dslash(links, half, short_numbers.numbers_like(half))).astype(
        complex
    )
