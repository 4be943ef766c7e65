"""Results as HDF5 files that say what they are: dimension scales, long names, attributes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray

from pipeline.declare.node import Node
from pipeline.reading.result import result_to_export
from pipeline.store.store import Store
from stages.base.atomic import replacing
from stages.base.errors import InputError

FORMAT = "v110"
"""Oldest HDF5 that reads the files. Attributes of earlier ones hold 64 kiB, less than labels may take."""


def export_hdf5(
    store: Store | str | os.PathLike[str],
    name: str | Node,
    path: str | os.PathLike[str],
    *,
    workflow: str | None = None,
) -> Path:
    """Write a node's joined result to one HDF5 file: arrays, coordinates as dimension scales, attributes.

    Attributes are those of `open_result`, what is nested as JSON text. Folders that are missing are made.
    Raises InputError for a result that is incomplete or damaged, and for a file that cannot be written.
    """
    target = Path(path)
    write_hdf5(result_to_export(Store.existing(store), name, workflow), target)
    return target


def write_hdf5(data: xarray.Dataset, target: Path) -> None:
    """Write a dataset as `export_hdf5` does."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as draft, h5py.File(draft.name, "w", libver=FORMAT) as file:
            _write(file, data)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error}") from error


def _write(file: h5py.File, data: xarray.Dataset) -> None:
    """Arrays and the scales of their dimensions; coordinates of several dimensions (momenta) are arrays."""
    _describe(file, data.attrs)
    scales: dict[str, h5py.Dataset] = {}
    for dim, size in data.sizes.items():
        labelled = dim in data.coords and data.coords[dim].ndim == 1
        scale = str(dim) if labelled else f"{dim}_number"
        file[scale] = _storable(data.coords[dim].values) if labelled else np.arange(size)
        file[scale].make_scale(scale)
        scales[str(dim)] = file[scale]
    for label, array in data.variables.items():
        if str(label) in file:
            continue
        file[str(label)] = array.values
        for axis, dim in enumerate(array.dims):
            file[str(label)].dims[axis].attach_scale(scales[str(dim)])
        _describe(file[str(label)], {**array.attrs, "dims": [str(dim) for dim in array.dims]})


def _describe(thing: h5py.File | h5py.Dataset, attributes: dict[Any, Any]) -> None:
    """Numbers, text and lists of text as they are, anything nested as JSON."""
    for name, value in attributes.items():
        texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
        plain = texts or isinstance(value, (str, int, float))
        thing.attrs[str(name)] = value if plain else json.dumps(value)


def _storable(values: np.ndarray) -> Any:
    """Labels as HDF5 strings."""
    return values if values.dtype.kind in "biufc" else [str(value) for value in values]
