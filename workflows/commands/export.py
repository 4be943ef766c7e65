"""`quarkline export`: results as files for other programs."""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import typer

from workflows.commands.options import JsonOption, StoreOption, WorkflowFile, say
from workflows.commands.target import store_of


class Kind(StrEnum):
    """Kinds of files."""

    ZARR = "zarr"
    HDF5 = "hdf5"
    CSV = "csv"
    GVAR = "gvar"
    PYERRORS = "pyerrors"


SAMPLED = (Kind.GVAR, Kind.PYERRORS)
"""Kinds of files for averages alone."""
AVERAGE = "average"
"""Result that these are written of unless others are named."""


def export(
    workflow: WorkflowFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder to write into.", show_default="beside the report"),
    ] = None,
    to: Annotated[
        list[Kind] | None,
        typer.Option(
            help="What to write; may be given several times. csv: tables for spreadsheets; gvar and "
            "pyerrors: averages with their correlations, where these libraries are installed.",
            show_default="zarr and hdf5",
        ),
    ] = None,
    format: Annotated[
        Literal["zarr", "hdf5", "both"], typer.Option(help="The same, of zarr and hdf5.", hidden=True)
    ] = "both",
    result: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Only these nodes.", show_default="the workflow's results"),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write a run's results, one file per node, with named dimensions and what they are of.

    Of a run that is not complete, they are those of the configurations that are, and the attribute `partial`
    of each file says so; averages of them are computed, nothing else. The exit code is 1 then.

    Example: quarkline export workflows/g2_disconnected.yaml --to hdf5

    Example: quarkline export my.yaml --to gvar --to csv --result average
    """
    from pipeline import InputError
    from pipeline.reading.result import IncompleteError
    from workflows.catalogue import load_project
    from workflows.commands.report import results_of, writing_into
    from workflows.exports import SUFFIX, WRITERS

    project = load_project(workflow)
    results = store_of(project, workflow, store)
    part = results_of(project, results, workflow)
    project = part.project
    folder = output or project.report
    if to and format != "both":
        raise InputError(f"--format {format} beside --to: name all kinds by --to")
    kinds = to or ([Kind.ZARR, Kind.HDF5] if format == "both" else [Kind(format)])
    sampled = result or [AVERAGE]
    written, missed = [], []
    with writing_into(folder):
        for name, kind in product(result or project.results, kinds):
            if kind in SAMPLED and name not in sampled:
                continue
            target = folder / f"{name}{SUFFIX[kind]}"
            try:
                written.append(WRITERS[kind](results, name, target, workflow=project.workflow.name))
            except IncompleteError as error:
                missed.append((target, str(error)))
                say(f"not written: {target}: {error}", err=True)
            else:
                say(str(written[-1]), err=json)
    if json:
        from workflows.outputs.campaigns import ExportOutput, NotWritten

        left = [NotWritten(file=file, reason=reason) for file, reason in missed]
        mark, missing = part.mark(results), len(part.whole.missing)
        ExportOutput(files=written, not_written=left, partial=mark, missing=missing).print()
    raise typer.Exit(int(bool(part.whole.missing)))
