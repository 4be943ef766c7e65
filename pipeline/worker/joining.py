"""Joining of chunks: arguments of a stage from the results that hold their coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from pipeline.declare.coordinates import Coordinate, Coordinates
from pipeline.declare.node import Stage
from pipeline.declare.signature import Input, Output
from pipeline.store.stored_array import StoredArray
from pipeline.worker.checks import Array
from pipeline.worker.work import Work

Result = Any
"""Arrays of a stage's outputs, of NumPy, CuPy or in the store, as its named tuple or by name."""


def joined(stage: Stage, wanted: Coordinates, pieces: Sequence[tuple[Coordinates, Result]]) -> Result:
    """One result at the wanted coordinates; the very object if there is nothing to join or cut.

    Args:
        stage: whose; along a dimension of it, an array has the length of the chunk.
        wanted: coordinates per dimension; a dimension that is absent is taken whole, from one chunk.
        pieces: (coordinates, result) of the chunks that hold them.
    """
    if len(pieces) == 1 and all(wanted.get(dim, held) == held for dim, held in pieces[0][0].items()):
        return pieces[0][1]
    arrays = (
        _join(output, wanted, [(at, result[k]) for at, result in pieces])
        for k, output in enumerate(stage.outputs)
    )
    return stage.result(*arrays)


def arguments_of(stage: Stage, work: Work) -> Iterator[tuple[Input, tuple[Work, ...]]]:
    """The inputs of a stage with the work that each is the result of."""
    for position, sources in enumerate(work.inputs or ()):
        yield stage.inputs[min(position, len(stage.inputs) - 1)], sources


def _join(output: Output, wanted: Coordinates, pieces: Sequence[tuple[Coordinates, Array]]) -> Array:
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
            whole = range(length)
            to, of = _common(wanted[dim], at[dim]) if dim in joined else (whole, whole)
            target.append(to)
            source.append(of)
        result[xp.ix_(*map(xp.asarray, target))] = array[xp.ix_(*map(xp.asarray, source))]
    return result


def _common(wanted: Sequence[Coordinate], held: Sequence[Coordinate]) -> tuple[list[int], list[int]]:
    """Positions, in both, of the coordinates that both have."""
    position = {value: k for k, value in enumerate(held)}
    both = [(k, position[value]) for k, value in enumerate(wanted) if value in position]
    return [to for to, _ in both], [of for _, of in both]
