"""`quarkline export`: results as Zarr or HDF5 files for other programs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from workflows.commands.options import StoreOption, WorkflowFile, say
from workflows.commands.target import store_of

if TYPE_CHECKING:
    from pipeline import Store


def export(
    workflow: WorkflowFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder to write into.", show_default="beside the report"),
    ] = None,
    format: Annotated[Literal["zarr", "hdf5", "both"], typer.Option(help="What to write.")] = "both",
    result: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Only these nodes.", show_default="the workflow's results"),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write a run's results, one file per node, with named dimensions and their provenance.

    Of a run that is not complete, they are those of the configurations that are, and the attribute `partial`
    of each file says so; averages of them are computed, nothing else. The exit code is 1 then.

    Example: quarkline export workflows/g2_disconnected.yaml --format hdf5
    """
    from pipeline import export_hdf5
    from pipeline.reading.result import IncompleteError
    from workflows.catalogue import load_project
    from workflows.commands.report import results_of, writing_into

    project = load_project(workflow)
    results = store_of(project, workflow, store)
    part = results_of(project, results, workflow)
    project = part.project
    folder = output or project.report
    writers: dict[str, Callable[..., Path]] = {"zarr": export_zarr, "hdf5": export_hdf5}
    with writing_into(folder):
        for name, kind in product(result or project.results, writers):
            if format in (kind, "both"):
                target = folder / f"{name}.{SUFFIX[kind]}"
                try:
                    say(str(writers[kind](results, name, target, workflow=project.workflow.name)))
                except IncompleteError as error:
                    say(f"not written: {target}: {error}", err=True)
    raise typer.Exit(int(bool(part.whole.missing)))


SUFFIX = {"zarr": "zarr", "hdf5": "h5"}


def export_zarr(store: Store, name: str, path: Path, *, workflow: str) -> Path:
    """Write a node's joined result to one Zarr v3 group, replacing what is there."""
    from pipeline import open_result

    data = open_result(store, name, workflow=workflow).load()
    text = {label: values.astype(object) for label, values in data.coords.items() if values.dtype.kind == "U"}
    data.assign_coords(text).to_zarr(path, mode="w", zarr_format=3, consolidated=False)
    return path
