"""Results as labelled arrays: all chunks of a node joined, lazily, with their provenance."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.declare.coordinates import natural_order
from pipeline.declare.node import Node
from pipeline.planning.chunk import Block
from pipeline.planning.manifest import Manifest, NodeRecord
from pipeline.planning.manifest_files import find_node, part_of
from pipeline.store.object_store import store_at
from pipeline.store.record import Record
from pipeline.store.store import Store
from pipeline.store.stored_array import StoredArray
from stages.base.errors import InputError

if TYPE_CHECKING:
    import xarray

_KEPT = ("stage", "version", "parameters", "code", "backend")
"""Parts of the chunks' records that the dataset carries."""


class IncompleteError(InputError):
    """A result of which chunks are missing."""


def open_result(
    store: Store | str | os.PathLike[str],
    name: str | Node,
    *,
    workflow: str | os.PathLike[str] | None = None,
    partial: bool = False,
) -> xarray.Dataset:
    """All arrays of a node's result, joined over its chunks; loaded when they are used.

    Args:
        store: the store, or its folder.
        name: the node, or its name in the workflow that was last run into the store; or the stage's, if only
            one node is of that stage.
        workflow: which one, if several have a node of that name; or its file, `my.yaml`, if several files of
            it were run into the store, and `my.yaml --set masses.light=0.1` of a run with a changed value.
        partial: take the chunks that exist; what is missing reads as NaN or 0. Of an average that is missing,
            take that of the coordinates that were complete when a run failed, if it was made.

    Returns:
        Named dimensions with coordinates: those of the stage, labels that it declares, else numbers from 0;
        dimensions of the stage that an array does not name come first. Each array has a `long_name`.
        Attributes: stage, version, parameters, code, backend, the number of chunks, and what the workflow
        says of all its results, such as ensemble, masses, and what is not included. `partial` is '5 of 6
        configurations' where the others are missing.

    Raises:
        InputError: no such store or result, or an incomplete one (`IncompleteError`).
    """
    store = store_at(store)
    where = None if workflow is None else os.fspath(workflow)
    manifest, label = find_node(store, name.name if isinstance(name, Node) else name, where)
    return _opened(store, manifest, label, partial)


def load_result(store: Store, name: str, workflow: str) -> xarray.Dataset:
    """A complete result in memory: each chunk is opened once, and not once for each of its arrays."""
    return _opened(store, *find_node(store, name, workflow), load=True)


def _opened(
    store: Store, manifest: Manifest, label: str, partial: bool = False, load: bool = False
) -> xarray.Dataset:
    """The result of a manifest's node, read at once or when it is used."""
    node = manifest.nodes[label]
    stage = node.stage
    stored = store.keys(stage)
    chunks = {at: key for at, key in zip(node.chunks, node.chunks.in_order(), strict=True) if key in stored}
    averaged = None if chunks else part_of(store, manifest)
    if averaged and partial:
        return _opened(store, averaged, label)
    if not chunks or (len(chunks) < len(node.chunks) and not partial):
        raise IncompleteError(
            f"result {label!r} has {len(chunks)} of {len(node.chunks)} chunks in store {store.path}: "
            "run its workflow"
            + (", or open what is there in Python with partial=True" if chunks or averaged else "")
        )
    grid = _grid(node)
    record = store.record(stage, next(iter(chunks.values())))
    held = {key: store.load(stage, key) for key in chunks.values()} if load else {}
    arrays = {
        output: _joined(store, stage, output, tuple(dims), grid, chunks, held)
        for output, dims in node.content["outputs"].items()
    }
    for output, text in node.content.get("long_names", {}).items():
        if output in arrays:
            arrays[output].attrs["long_name"] = text
    provenance = {name: record[name] for name in _KEPT if name in record}
    attributes = {"node": label, **manifest.about, **provenance, "chunks": len(chunks)}
    values = {dim: [value for block in blocks for value in block] for dim, blocks in grid.items()}
    coordinates = {**_labels(node.content.get("labels", {})), **values}
    import xarray

    try:
        return _numbered(xarray.Dataset(arrays, coordinates, attributes))
    except (ValueError, TypeError) as error:
        raise InputError(
            f"result {label!r} of store {store.path} does not fit the plan of its workflow "
            f"{manifest.workflow!r} ({error}): run that workflow again, which writes the plan anew"
        ) from error


def result_to_export(store: Store, name: str | Node, workflow: str | None = None) -> xarray.Dataset:
    """The joined result with `certificate`: what its chunks name, each once, 'none' where that is nothing."""
    data = open_result(store, name, workflow=workflow)
    manifest, label = find_node(store, data.attrs["node"], workflow)
    node = manifest.nodes[label]
    records = (Record.of(store.record(*chunk)) for chunk in node.chunk_ids)
    named = dict.fromkeys(record.certificate or "none" for record in records)
    return data.assign_attrs(certificate=", ".join(named))


def _numbered(data: xarray.Dataset) -> xarray.Dataset:
    """The same with numbers along dimensions without coordinates, but those that an array is named after."""
    bare = [dim for dim in data.sizes if dim not in data.variables]
    return data.assign_coords({dim: np.arange(data.sizes[dim]) for dim in bare})


def _labels(labels: Mapping[str, Any]) -> dict[str, Any]:
    """Coordinates of a manifest's labels: names along a dimension, or rows along it and another one."""
    coordinates: dict[str, Any] = {}
    for dim, names in labels.items():
        if isinstance(names, Mapping):
            coordinates[dim] = ((dim, names["axis"]), np.array(names["rows"]))
            coordinates[names["axis"]] = list(names["components"])
        else:
            coordinates[dim] = names
    return coordinates


Grid = dict[str, list[Block]]
"""The chunks of a node: blocks of coordinates by dimension."""

Held = Mapping[str, Mapping[str, np.ndarray]]
"""Arrays in memory, by the key of their chunk and their name."""


def _grid(node: NodeRecord) -> Grid:
    return {
        dim: sorted(node.chunks.blocks(axis), key=lambda block: natural_order(block[0]))
        for axis, dim in enumerate(node.content["over"])
    }


def _joined(
    store: Store, stage: str, output: str, dims: Sequence[str], grid: Grid, chunks: dict[Any, str], held: Held
) -> xarray.Variable:
    """One output over the whole grid, a block per chunk; lazy unless the chunks are `held`."""
    import dask.array
    import xarray

    first = next(iter(chunks.values()))
    with store.reading(stage, first):
        example: Any = (held[first] if held else store.open(stage, first))[output]
        if example.ndim != len(dims):
            raise ValueError(f"{output} has shape {example.shape}, and dimensions {', '.join(dims)}")
    lead = tuple(dim for dim in grid if dim not in dims)

    def block(at: dict[str, Block]) -> Any:
        lengths = [len(at[dim]) if dim in at else n for dim, n in zip(dims, example.shape, strict=True)]
        shape = (*(1 for _ in lead), *lengths)
        key = chunks.get(tuple(at.items()))
        if held and key:
            with store.reading(stage, key):
                _check(output, held[key][output], tuple(lengths), example.dtype)
                return held[key][output].reshape(shape)
        if key is None:
            empty = np.nan if example.dtype.kind in "fc" else 0
            return dask.array.full(shape, empty, dtype=example.dtype)
        stored = _Block(store.array(stage, key, output), shape, example.dtype)
        pieces = (*(1 for _ in lead), *example.chunks)
        name = f"{output}-{key}"
        meta = np.empty(0, example.dtype)
        return dask.array.from_array(stored, pieces, name=name, asarray=False, meta=meta)

    def nested(dims_left: Sequence[str], at: dict[str, Block]) -> Any:
        if not dims_left:
            return block(at)
        dim, *others = dims_left
        axis = (*lead, *dims).index(dim)
        parts = [nested(others, {**at, dim: values}) for values in grid[dim]]
        return (np if held else dask.array).concatenate(parts, axis=axis)

    return xarray.Variable((*lead, *dims), nested(tuple(grid), {}))


def _check(name: str, array: np.ndarray | StoredArray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise ValueError where a chunk's array is not like those of the others."""
    if (array.shape, array.dtype) != (shape, dtype):
        raise ValueError(f"{name} is {array.dtype} {array.shape}, where {dtype} {shape} belongs")


@dataclass(frozen=True)
class _Block:
    """A stored array with axes of length 1 before its own, for Dask: it reads the pieces that are used."""

    stored: StoredArray
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, part: tuple[Any, ...]) -> np.ndarray:
        lead = self.ndim - self.stored.ndim
        with self.stored.reading():
            _check(self.stored.name, self.stored, self.shape[lead:], self.dtype)
        return self.stored[part[lead:]][(None,) * lead][(*part[:lead], ...)]
