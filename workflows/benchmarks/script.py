"""Parts that the measuring scripts share: common options, Markdown rows, operators on quenched links."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import Lattice

OVERRELAXATION = 4


def options(
    description: str | None, *, lattice: Sequence[int] | None = (8, 8, 8, 16), backend: bool = True
) -> argparse.ArgumentParser:
    """A parser with `--lattice X Y Z T` and `--backend`, described by a module's docstring."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if backend:
        parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    if lattice is not None:
        extents: dict[str, Any] = {"nargs": 4, "default": list(lattice), "metavar": ("X", "Y", "Z", "T")}
        parser.add_argument("--lattice", type=int, **extents)
    return parser


def row(*cells: str) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def head(*names: str) -> str:
    """The first two lines of a Markdown table."""
    return f"{row(*names)}\n{row(*['---'] * len(names))}"


def quenched(
    lattice: Lattice, label: str, *, beta: float, seed: int, sweeps: int, xp: ModuleType = np
) -> Array:
    """Thin links ``[mu, parity, site, 3, 3]`` of one configuration, by heat bath from a hot start."""
    return thermalised(lattice, beta, seed, label, sweeps, OVERRELAXATION, xp=xp)


def staggered(thin: Array, lattice: Lattice) -> StaggeredDslash:
    """D of HISQ links, antiperiodic in time."""
    return StaggeredDslash(hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0))


def wilson(thin: Array, lattice: Lattice, mass: float, csw: float) -> WilsonOperator:
    """The Wilson-clover operator, antiperiodic in time."""
    return WilsonOperator(WilsonDslash(wilson_links(thin, lattice, boundary="antiperiodic", csw=csw)), mass)
