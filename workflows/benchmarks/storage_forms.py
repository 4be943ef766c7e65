"""Errors of the Wilson dslash by the form of links and fields."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.lqcd.dirac.doubled_links import doubled_links
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.kernels import half_field
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.wilson_dslash import PackedLinks, pack, pack_fields, wilson_dslash
from stages.lqcd.lattice.geometry import EVEN
from workflows.benchmarks.machine import Machine, random_field
from workflows.benchmarks.script import PrintedTable
from workflows.benchmarks.speed import DTYPES

WHOLE, TO_SINGLE, HALF = "whole", "16 bits, result in single", "16 bits"
"""Forms of fields: in the precision of the links, or in 16 bits and a scale."""
TWO_ROWS = 8
"""Right-hand sides for which links have 12 reals on a GPU in both precisions."""


def error_table(machine: Machine, M: WilsonOperator) -> None:
    """Print errors of D on the even sites, relative to double with 18 reals.

    Of random fields that of the norm. Matrix elements are the results on 12 sources of one number each, on a
    site; their errors are relative to the root mean square of those that are not zero.
    """
    table = PrintedTable("links", "reals", "fields", "random fields", "elements, rms", "elements, largest")
    points = machine.xp.zeros((M.lattice.half_volume, COMPONENTS, COMPONENTS), complex)
    points[M.lattice.half_volume // 3] = machine.xp.eye(COMPONENTS)
    operands, norm = (random_field(machine, points.shape, complex), points), machine.xp.linalg.norm
    packed = forms(machine, M)
    reference = packed.pop(("double", 18))
    exact = [product(reference, x, WHOLE) for x in operands]
    there = exact[1] != 0
    for (precision, reals), links in packed.items():
        for fields in (WHOLE, TO_SINGLE, HALF) if precision == "single" else (WHOLE,):
            noise, elements = (product(links, x, fields) - y for x, y in zip(operands, exact, strict=True))
            relative = norm(noise.ravel()) / norm(exact[0].ravel())
            unit = norm(exact[1][there])
            cells = relative, norm(elements[there]) / unit, abs(elements).max() / unit * there.sum() ** 0.5
            table.add(precision, reals, fields, *map(float, cells))


def forms(machine: Machine, M: WilsonOperator) -> dict[tuple[str, int], PackedLinks]:
    """Links into the even sites by precision and reals of each: all 18, and the 12 of SU(3) on a GPU."""
    links, lattice = M.links, M.lattice
    doubled = doubled_links(links.links, None, lattice, EVEN, np.complex128)
    packed: dict[tuple[str, int], PackedLinks] = {}
    for precision in ("double", "single"):
        dtype = DTYPES[precision]
        packed[precision, 18] = pack(doubled.astype(dtype), lattice, EVEN)
        if machine.backend == "cuda":
            weights = links.anisotropy.weights
            packed[precision, 12] = pack_fields(links.links, weights, lattice, EVEN, dtype, TWO_ROWS)
    return packed


def product(links: PackedLinks, x: Array, fields: str) -> Array:
    """D x ``[site, 12, N]`` in complex128, by these links and form of fields."""
    whole = x.astype(links.dtype)
    if fields == WHOLE:
        return wilson_dslash(links, whole, field_like(whole)).astype(complex)
    half: Any = half_field.to_half(whole)
    if fields == TO_SINGLE:
        return wilson_dslash(links, half, field_like(whole)).astype(complex)
    return half_field.from_half(wilson_dslash(links, half, half_field.spinors_like(half))).astype(complex)
