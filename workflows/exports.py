"""Files of results for other programs: tables for spreadsheets, correlators for gvar and pyerrors."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from pipeline import InputError
from pipeline.reading.hdf5 import write_hdf5
from stages.lqcd.analysis.jackknife import jackknife_covariance

SAMPLES = "_samples"
"""End of the name of an array's jackknife samples, ``[sample, ...]``."""
BOOTSTRAP = "bootstrap_average"
"""Stage whose samples are no jackknife's."""
ENSEMBLE = "quarkline"
"""Name of the ensemble in files of pyerrors."""
SAMPLED = ("gvar", "pyerrors")
"""Kinds of files for averages alone."""
LARGEST = 5000
"""Numbers in one covariance matrix, of 200 MB."""


def write_zarr(data: xarray.Dataset, path: Path) -> None:
    """Write a dataset to one Zarr v3 group, replacing what is there."""
    data = data.load()
    text = {label: values.astype(object) for label, values in data.coords.items() if values.dtype.kind == "U"}
    with _draft_of(path) as draft:
        data.assign_coords(text).to_zarr(draft, mode="w", zarr_format=3, consolidated=False)


def write_csv(data: xarray.Dataset, path: Path) -> None:
    """Write a dataset to one table, a line for each number.

    Columns: the array, a column for each dimension, the value, and its imaginary part where there is one.
    Attributes stand above, behind '#'.
    """
    dims = list(dict.fromkeys(str(dim) for array in data.data_vars.values() for dim in array.dims))
    with _draft_of(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        for name, value in data.attrs.items():
            file.write(f"# {name}: {value if isinstance(value, str) else json.dumps(value)}\n")
        table = csv.writer(file)
        table.writerow(["array", *dims, "value", "imaginary"])
        for name, array in data.data_vars.items():
            own = [labels_along(data, dim) if dim in array.dims else [""] for dim in dims]
            numbers = array.transpose(*(dim for dim in dims if dim in array.dims)).values.ravel()
            for place, number in zip(product(*own), numbers, strict=True):
                imaginary = repr(float(number.imag)) if np.iscomplexobj(number) else ""
                table.writerow([name, *place, repr(number.real.item()), imaginary])


def write_gvar(data: xarray.Dataset, path: Path) -> None:
    """Write averages with their covariance to a file of `gvar.load`: a dictionary of arrays ``[time]``.

    Keys are labels of the other dimensions, `about` holds the attributes. Raises InputError for a result
    without jackknife samples, or with more numbers than one covariance matrix should have.
    """
    gvar = library("gvar")
    keys, means, samples = _correlators(data)
    if means.size > LARGEST:
        raise InputError(
            f"{data.attrs['node']} has {means.size} correlated numbers, and a file of gvar holds their whole "
            f"covariance, at most {LARGEST}: export to hdf5 or pyerrors, or measure fewer momenta"
        )
    covariance = jackknife_covariance(samples.reshape(len(samples), -1))
    values = gvar.gvar(means.ravel(), covariance).reshape(means.shape)
    with _draft_of(path) as draft:
        gvar.dump({**dict(zip(keys, values, strict=True)), "about": data.attrs}, str(draft))


def write_pyerrors(data: xarray.Dataset, path: Path) -> None:
    """Write averages to a file of `pyerrors.input.json.load_json_dict`: a dictionary of `Corr`.

    Keys are labels of the other dimensions; the attributes are the description. The ensemble is called
    `ENSEMBLE`. Raises InputError for a result without jackknife samples.
    """
    pyerrors = library("pyerrors")
    keys, means, samples = _correlators(data)
    both = np.concatenate([means[None], samples])
    correlators = {
        key: pyerrors.Corr([pyerrors.import_jackknife(both[:, k, t], ENSEMBLE) for t in range(both.shape[2])])
        for k, key in enumerate(keys)
    }
    with _draft_of(path) as draft:
        name = str(draft).removesuffix(".json.gz")
        pyerrors.input.json.dump_dict_to_json(correlators, name, description=dict(data.attrs))


WRITERS: dict[str, tuple[str, Callable[[xarray.Dataset, Path], None]]] = {
    "zarr": (".zarr", write_zarr),
    "hdf5": (".h5", write_hdf5),
    "csv": (".csv", write_csv),
    "gvar": (".gvar.json", write_gvar),
    "pyerrors": (".pyerrors.json.gz", write_pyerrors),
}
"""End of the name of each kind of file, and the function that writes a joined result to one."""


@contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """A place of the same name for a file or folder that then replaces what is at `path`, be it a link."""
    with TemporaryDirectory(prefix=".", dir=path.parent) as folder:
        draft = Path(folder, path.name)
        yield draft
        if draft.is_dir() and os.path.lexists(path):
            path.rename(Path(folder, f"{path.name}-before"))
        draft.replace(path)


def _correlators(data: xarray.Dataset) -> tuple[list[str], NDArray, NDArray]:
    """Keys, averages ``[key, time]`` and jackknife samples ``[sample, key, time]`` of all sampled arrays.

    A key, `Gamma5 1,0,0`, is labels along all dimensions but the last.
    """
    data = data.load()
    name = next((str(each) for each in data.data_vars if f"{each}{SAMPLES}" in data), None)
    bootstrap = data.attrs["stage"] == BOOTSTRAP or data.attrs.get("parameters", {}).get("bootstrap")
    if name is None or bootstrap:
        raise InputError(f"{data.attrs['node']} has no jackknife samples: export it to hdf5, zarr or csv")
    mean = data[name]
    samples = data[f"{name}{SAMPLES}"].transpose("sample", *mean.dims).values
    if np.isnan(samples).all():
        raise InputError(
            f"{data.attrs['node']} has no errors: at least two bins of configurations are needed"
        )
    times = mean.shape[-1]
    labels = product(*(labels_along(data, str(dim)) for dim in mean.dims[:-1]))
    keys = [" ".join(each) for each in labels]
    return keys, mean.values.reshape(-1, times), samples.reshape(len(samples), -1, times)


def labels_along(data: xarray.Dataset, dim: str) -> list[str]:
    """Labels along a dimension; a momentum's are its components."""
    if dim not in data.coords:
        return [str(number) for number in range(data.sizes[dim])]
    rows = data.coords[dim].values.reshape(data.sizes[dim], -1)
    return [",".join(map(str, row)) for row in rows]


def library(name: str) -> Any:
    """The package that writes a kind of files. Raises InputError where it cannot be imported."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or name).partition(".")[0]
        raise InputError(f"export to {name} needs {missing}: pip install {missing}") from error
    except Exception as error:  # another package's code, which may raise anything
        raise InputError(
            f"{name} is installed, but cannot be imported ({type(error).__name__}: {error}): "
            f"pip install --force-reinstall {name}"
        ) from error
