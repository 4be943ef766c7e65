"""`quarkline export`: results as files for other programs."""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from workflows.commands.options import JsonOption, StoreOption, WorkflowFile, say
from workflows.commands.target import store_of

if TYPE_CHECKING:
    from pipeline import Store
    from workflows.outputs.campaigns import NotWritten


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
    from workflows.catalogue import load_project
    from workflows.commands.report import results_of, sound_chunks

    project = load_project(workflow)
    results = store_of(project, workflow, store)
    with sound_chunks(results, workflow):
        part = results_of(project, results, workflow)
    kinds, averages = _kinds(to, format), result or [AVERAGE]
    names = [
        (name, kind)
        for name, kind in product(result or part.project.results, kinds)
        if kind not in SAMPLED or name in averages
    ]
    folder = output or part.project.report
    with sound_chunks(results, workflow):
        written, missed = _write(names, folder, part.project.workflow.name, results, json)
    missing = len(part.whole.missing)
    if json:
        from workflows.outputs.campaigns import ExportOutput

        mark = part.mark(results)
        ExportOutput(files=written, not_written=missed, partial=mark, missing=missing).print()
    raise typer.Exit(int(missing > 0))


def _kinds(to: list[Kind] | None, format: str) -> list[Kind]:
    """Kinds of files by either option."""
    from pipeline import InputError

    if to and format != "both":
        raise InputError(f"--format {format} beside --to: name all kinds by --to")
    return to or ([Kind.ZARR, Kind.HDF5] if format == "both" else [Kind(format)])


def _write(
    names: list[tuple[str, Kind]], folder: Path, workflow: str, store: Store, quiet: bool
) -> tuple[list[Path], list[NotWritten]]:
    """Write a file of each result and kind, and say so; files written, and those of incomplete results."""
    from pipeline.reading.result import IncompleteError
    from workflows.commands.report import writing_into
    from workflows.exports import SUFFIX, WRITERS
    from workflows.outputs.campaigns import NotWritten

    written, missed = [], []
    with writing_into(folder):
        for name, kind in names:
            target = folder / f"{name}{SUFFIX[kind]}"
            try:
                written.append(WRITERS[kind](store, name, target, workflow=workflow))
            except IncompleteError as error:
                missed.append(NotWritten(file=target, reason=str(error)))
                say(f"not written: {target}: {error}", err=True)
            else:
                say(str(written[-1]), err=quiet)
    return written, missed
