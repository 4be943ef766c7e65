"""Multigrid as a workflow names it: levels from plain numbers, and levels for who names none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import COMPLEX
from stages.lqcd.multigrid.aggregates import Grid, four_extents
from stages.lqcd.multigrid.setup import LevelParameters, Multigrid
from stages.lqcd.multigrid.smoothers import PolynomialSmoother
from stages.lqcd.multigrid.wilson import COMPONENTS

LevelNumbers = Mapping[str, Any]
"""A level as workflows name it: see `multigrid_of`."""

FEW_SITES = 128
"""A grid with no more sites is the coarsest."""
RELAXED_BLOCKS = 9.2
"""Blocks of near-null vectors alive while they are refined: measured at 16^3 x 32 and 24^3 x 32."""
PADDED = 8
"""Near-null vectors are filled up to multiples of this number on a GPU."""
NEEDED = {"aggregate", "smoothing"}
KEYS = NEEDED | {"vectors", "refinements", "steps", "tolerance"}


def multigrid_of(levels: Sequence[LevelNumbers], seed: int) -> Multigrid:
    """Multigrid of levels {aggregate, vectors, refinements, smoothing, steps, tolerance}, the finest first.

    smoothing: steps after the coarse correction; the rest as `LevelParameters`. Raises InputError.
    """
    for level in levels:
        if not isinstance(level, Mapping) or not NEEDED <= set(level) <= KEYS:
            raise InputError(
                f"a level of multigrid has the keys {', '.join(sorted(NEEDED))} and may have "
                f"{', '.join(sorted(KEYS - NEEDED))}, got {level!r}"
            )
    return Multigrid(tuple(_level(**level) for level in levels), seed=seed)


def _level(*, aggregate: Sequence[int], smoothing: int, **numbers: Any) -> LevelParameters:
    extents = four_extents("an aggregate", aggregate)
    return LevelParameters(extents, post=PolynomialSmoother(smoothing), **numbers)


def check_levels(levels: Sequence[LevelNumbers], lattice: Lattice) -> None:
    """Raises InputError where aggregates do not divide a grid, or have fewer components than vectors."""
    components = COMPONENTS // 2
    for level, blocks in zip(levels, multigrid_of(levels, 0).aggregates(Grid(lattice.extents)), strict=True):
        vectors = level.get("vectors", LevelParameters.vectors)
        if vectors > (room := components * blocks.volume):
            raise InputError(
                f"{vectors} near-null vectors, but an aggregate of {blocks.volume} sites of the "
                f"{blocks.fine} grid has {room} components of each chirality: take fewer vectors or larger "
                "aggregates"
            )
        components = vectors


def default_levels(lattice: Lattice) -> list[dict[str, Any]]:
    """Aggregates of 4 sites in a direction, 2 where 4 do not divide it or are all of it; 24 vectors.

    Further levels of 2 sites and 32 vectors follow while a grid has more than 128 sites and even extents.
    With those the vectors of the first are refined once more, and theirs once; they smooth by six steps.
    """
    extents = lattice.extents
    aggregate = [4 if n % 4 == 0 and n >= 8 else 2 for n in extents]
    levels: list[dict[str, Any]] = [{"aggregate": aggregate, "vectors": 24}]
    grid = Grid(_coarser(extents, aggregate))
    while grid.sites > FEW_SITES and not any(n % 2 for n in grid.extents):
        levels[0]["refinements"] = 3
        levels.append({"aggregate": [2, 2, 2, 2], "vectors": 32, "refinements": 1, "smoothing": 6})
        grid = Grid(_coarser(grid.extents, [2, 2, 2, 2]))
    return levels


def hierarchy_terms(lattice: Lattice, levels: Sequence[LevelNumbers]) -> dict[str, int]:
    """Bytes of a stored hierarchy, in complex64.

    Near-null vectors, and coarse operators of nine matrices per site, of all levels.
    """
    vectors, operators, sites, components = 0, 0, lattice.volume, COMPONENTS
    for level in levels:
        vectors += COMPLEX // 2 * sites * components * level["vectors"]
        sites, components = sites // prod(level["aggregate"]), 2 * level["vectors"]
        operators += 9 * COMPLEX // 2 * sites * components**2
    return {"near-null vectors": vectors, "coarse operators": operators}


def loaded_terms(lattice: Lattice, levels: Sequence[LevelNumbers]) -> dict[str, int]:
    """Bytes of a loaded hierarchy on a GPU.

    Near-null vectors once where an aggregate has as many even as odd sites, on the even ones in the orders of
    restriction and prolongation; twice where not. Coarse operators, and what even-odd systems made of them,
    in 16 bits; other systems have them in single precision.
    """
    vectors, operators, components = 0, 0, COMPONENTS
    for level, blocks in zip(levels, multigrid_of(levels, 0).aggregates(Grid(lattice.extents)), strict=True):
        padded, orders = -(-level["vectors"] // PADDED) * PADDED, 1 if blocks.halved else 2
        vectors += orders * COMPLEX // 2 * blocks.fine.sites * components * padded
        components, packed = 2 * level["vectors"], 9.5 / 2 if blocks.coarse.even_odd else 9
        operators += int((9 + packed) * COMPLEX // 2 * blocks.coarse.sites * components**2)
    return {"near-null vectors": vectors, "coarse operators": operators}


def setup_bytes(lattice: Lattice, levels: Sequence[LevelNumbers]) -> int:
    """Bytes that a setup takes beside the operator and the hierarchy.

    The finest level's vectors while they are relaxed, those of the smoother on one parity.
    """
    return int(RELAXED_BLOCKS * COMPLEX // 2 * lattice.volume * COMPONENTS * levels[0]["vectors"])


def _coarser(extents: Sequence[int], aggregate: Sequence[int]) -> tuple[int, int, int, int]:
    x, y, z, t = (n // a for n, a in zip(extents, aggregate, strict=True))
    return x, y, z, t
