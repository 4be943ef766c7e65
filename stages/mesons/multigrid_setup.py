"""Stages of multigrid: the setup, stored once per configuration, and the hierarchy that solves take of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from pipeline import At, Dims, Keyed, Resources, stage
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.multigrid.levels import multigrid_of
from stages.mesons.costs import hierarchy_cost, setup_cost

FIELDS = ("vectors", "diagonal", "links")
"""Of each level."""
PIECE = 1 << 21
"""Numbers: 16 MB."""


class MultigridSetup(NamedTuple):
    """Near-null vectors and coarse operators of all levels, complex64, one array after the other."""

    vectors: Annotated[np.ndarray, Dims("vector_number", pieces={"vector_number": PIECE})]
    """Block-orthonormal near-null vectors (`stages.lqcd.multigrid.aggregates`)."""
    diagonal: Annotated[np.ndarray, Dims("diagonal_number", pieces={"diagonal_number": PIECE})]
    links: Annotated[np.ndarray, Dims("link_number", pieces={"link_number": PIECE})]
    """Of the coarse operators (`stages.lqcd.multigrid.coarse_operator`)."""
    shapes: Annotated[np.ndarray, Dims("level", "field", "axis")]
    """int64, of each level's arrays, filled up with zeros."""
    metadata: Annotated[np.ndarray, Dims("byte")]
    """uint8, JSON: aggregates, what the operator is known by, convergence rates, seconds of the setup."""


@stage(
    version="4", over=("config",), resources=Resources(device=1), labels={"field": FIELDS}, cost=setup_cost
)
def multigrid_setup(
    operator: WilsonOperator, *, at: At, levels: Sequence[Mapping[str, Any]], seed: int
) -> MultigridSetup:
    """Near-null vectors from relaxation of random ones, all at once, refined, and the coarse operators.

    levels: `stages.lqcd.multigrid.levels.multigrid_of`. seed: of the random vectors. The key is that
    of the operator (gauge field, boundary, mass, csw, anisotropy) with these. The backend is not in it: what
    is solved with the setup agrees to the tolerance of the solves. A setup whose cycle converges badly on a
    random residual is made again with another seed, which is recorded. Raises InputError, and PoorSetup where
    that one is no better.
    """
    hierarchy = multigrid_of(levels, seed).setup(operator)
    at.record(
        setup_seconds=hierarchy.seconds,
        rate=hierarchy.rate,
        attempts=[{"seed": attempt.seed, "rate": attempt.rate} for attempt in hierarchy.attempts],
        rebuilt=len(hierarchy.attempts) > 1,
        grids=[str(level.transfer.aggregates.coarse) for level in hierarchy.cycle.levels],
    )
    return packed(hierarchy)


@stage(
    version="1",
    over=("config",),
    transient=True,
    resident=True,
    keyed=Keyed(later=("other_flavour",)),
    cost=hierarchy_cost,
)
def multigrid_hierarchy(
    operator: WilsonOperator,
    setup: MultigridSetup,
    *,
    at: At,
    levels: Sequence[Mapping[str, Any]],
    seed: int,
    other_flavour: bool = False,
) -> Hierarchy:
    """The hierarchy of a stored setup, where the solves run; levels and seed are those of the setup.

    other_flavour: that of -mu from the same setup, of twisted quarks.

    In a run the key says that the setup is of this operator; here it is compared once more with what was
    recorded. Raises InputError for the setup of another operator or gauge field.
    """
    arrays, metadata = unpacked(setup)
    hierarchy = multigrid_of(levels, seed).load(arrays, metadata, operator)
    return hierarchy.twist_scaled(-1) if other_flavour else hierarchy


def packed(hierarchy: Hierarchy) -> MultigridSetup:
    """The stored form."""
    arrays, levels = hierarchy.arrays(), range(len(hierarchy.cycle.levels))
    flat = {
        name: np.concatenate([arrays[f"{name}_{level}"].reshape(-1) for level in levels]) for name in FIELDS
    }
    most = max(array.ndim for array in arrays.values())
    shapes = np.zeros((len(levels), len(FIELDS), most), np.int64)
    for level in levels:
        for number, name in enumerate(FIELDS):
            shape = arrays[f"{name}_{level}"].shape
            shapes[level, number, : len(shape)] = shape
    text = json.dumps(hierarchy.metadata()).encode()
    return MultigridSetup(**flat, shapes=shapes, metadata=np.frombuffer(text, np.uint8).copy())


def unpacked(setup: MultigridSetup) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and metadata as `stages.lqcd.multigrid.hierarchy` names them."""
    arrays = {}
    for number, name in enumerate(FIELDS):
        flat, start = np.asarray(getattr(setup, name)), 0
        for level, shapes in enumerate(np.asarray(setup.shapes)):
            shape = [int(extent) for extent in shapes[number] if extent]
            stop = start + int(np.prod(shape))
            arrays[f"{name}_{level}"] = flat[start:stop].reshape(shape)
            start = stop
    return arrays, json.loads(np.asarray(setup.metadata).tobytes())
