"""Joining the arrays of several chunks into one result, or cutting a part out of one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from pipeline.declare.coordinates import Coordinate, Coordinates
from pipeline.declare.signature import Output
from pipeline.store.stored_array import StoredArray


def join(
    outputs: Sequence[Output], wanted: Coordinates, pieces: Sequence[tuple[Coordinates, Any]]
) -> dict[str, Any]:
    """Arrays at the `wanted` coordinates, from the chunks that hold them.

    Args:
        outputs: names and dimensions of the arrays; along a dimension of the stage, an array has the length
            of the chunk.
        wanted: coordinates per dimension; a dimension that is absent is taken whole, from one chunk.
        pieces: (coordinates, result) of each chunk; a result is a tuple of arrays in the order of `outputs`.
    """
    return {
        output.name: _join_one(output, wanted, [(at, result[k]) for at, result in pieces])
        for k, output in enumerate(outputs)
    }


def _join_one(output: Output, wanted: Coordinates, pieces: Sequence[tuple[Coordinates, Any]]) -> Any:
    """NumPy or CuPy, as the pieces are; what lies in the store is read."""
    pieces = [(at, np.asarray(a) if isinstance(a, StoredArray) else a) for at, a in pieces]
    first_at, first = pieces[0]
    joined = [dim for dim in output.dims if dim in wanted and dim in first_at]
    shape = [
        len(wanted[dim]) if dim in joined else n for dim, n in zip(output.dims, first.shape, strict=True)
    ]
    xp = import_module(type(first).__module__.partition(".")[0])
    result = xp.empty(shape, first.dtype)
    for at, array in pieces:
        target, source = [], []
        for dim, length in zip(output.dims, array.shape, strict=True):
            here, there = _common(wanted[dim], at[dim]) if dim in joined else (range(length), range(length))
            target.append(here)
            source.append(there)
        result[xp.ix_(*map(xp.asarray, target))] = array[xp.ix_(*map(xp.asarray, source))]
    return result


def _common(wanted: Sequence[Coordinate], held: Sequence[Coordinate]) -> tuple[list[int], list[int]]:
    """Positions, in both, of the coordinates that both have."""
    position = {value: k for k, value in enumerate(held)}
    both = [(k, position[value]) for k, value in enumerate(wanted) if value in position]
    return [here for here, _ in both], [there for _, there in both]
