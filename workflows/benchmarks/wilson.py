"""Wilson-clover on one parity: the dslash, the clover product, the symmetric Schur complement of both."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from stages.lqcd.dirac.wilson import CLOVER_FLOPS, DSLASH_FLOPS, WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.reunitarise import to_u3
from stages.lqcd.gauge.wilson_links import Anisotropy, WilsonLinks
from stages.lqcd.kernels import clover
from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.lattice.geometry import EVEN
from workflows.benchmarks.machine import random_field
from workflows.benchmarks.speed import Bench, SiteCost, Speed

MASS = 0.1
CLOVER_NUMBERS = 36
"""Complex numbers that two Hermitian 6 x 6 matrices hold."""


def dslash_cost(rhs: int, itemsize: int) -> SiteCost:
    """72 numbers of the links, shared by the block; 8 neighbours or one; the result."""
    links, spinor = NAIVE_DIRECTIONS * 9 * itemsize / rhs, COMPONENTS * itemsize
    return SiteCost(DSLASH_FLOPS, links + 2 * spinor, links + (NAIVE_DIRECTIONS + 1) * spinor)


def clover_cost(rhs: int, itemsize: int) -> SiteCost:
    """The matrices and two fields."""
    moved = (CLOVER_NUMBERS / rhs + 2 * COMPONENTS) * itemsize
    return SiteCost(CLOVER_FLOPS, moved, moved)


def schur_cost(rhs: int, itemsize: int) -> SiteCost:
    """Two dslashes, the matrices of both parities in the same passes, and the field once more."""
    dslash, matrices = dslash_cost(rhs, itemsize), CLOVER_NUMBERS * itemsize / rhs
    clover = SiteCost(CLOVER_FLOPS, matrices, matrices)
    again = COMPONENTS * itemsize
    return dslash + dslash + clover + clover + SiteCost(4 * COMPONENTS, again, again)


def speeds(bench: Bench) -> Iterator[Speed]:
    """Speeds in every precision and width, with random SU(3) links."""
    links, sites = random_links(bench), bench.lattice.half_volume
    for precision, dtype, rhs in bench.blocks:
        schur = schur_for(links, rhs, dtype)
        operator = schur.M
        x = random_field(bench.machine, (*schur.shape, rhs), dtype)
        out = bench.machine.xp.empty_like(x)
        works = {
            "wilson_dslash": (partial(operator.dslash.apply_to, EVEN, x, out), dslash_cost),
            "clover": (partial(clover.multiply, operator.clover(EVEN), x, out), clover_cost),
            "Schur, clover": (partial(schur.apply, x, out), schur_cost),
        }
        names: dict[str, Any] = {"family": "wilson", "precision": precision, "rhs": rhs}
        for kernel, (work, cost) in works.items():
            yield bench.measured(work, cost(rhs, dtype.itemsize), sites, kernel=kernel, **names)


def random_links(bench: Bench) -> WilsonLinks:
    """Links in SU(3), as packed forms of few reals need; with a clover term."""
    xp, sites = bench.machine.xp, bench.lattice.half_volume
    links = to_u3(random_field(bench.machine, (4, 2, sites, 3, 3), np.complex128)).matrices
    links /= (xp.linalg.det(links) ** (1 / 3))[..., None, None]
    return WilsonLinks(links, (0.3, 0.3), bench.lattice, ("periodic",) * 4, Anisotropy(), 0.0)


def schur_for(links: WilsonLinks, rhs: int, dtype: Any = np.complex128) -> WilsonSchur:
    """The Schur complement with links in the form that blocks of so many right-hand sides read."""
    return WilsonSchur(WilsonOperator(WilsonDslash(links, dtype, Packing(block=rhs)), MASS))
