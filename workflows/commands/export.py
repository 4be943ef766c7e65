"""`quarkline export`: results as files for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline import InputError, Store
from pipeline.reading.result import IncompleteError, result_to_export
from workflows.commands.options import JsonOption, SetOption, StoreOption, WorkflowFile
from workflows.documents import Document
from workflows.exports import SAMPLED, WRITERS, library
from workflows.publishing import results_of, sound_chunks, writing_into
from workflows.stores import project_and_store, replaced_report
from workflows.terminal import say


class Kind(StrEnum):
    """Kinds of files, keys of `workflows.exports.WRITERS`."""

    ZARR = "zarr"
    HDF5 = "hdf5"
    CSV = "csv"
    GVAR = "gvar"
    PYERRORS = "pyerrors"


AVERAGE = "average"
"""Result that files for averages are written of unless others are named."""


@dataclass(frozen=True)
class NotWritten:
    """A file that could not be written, and why."""

    file: Path
    reason: str


DOCUMENT = Document(
    "export",
    {
        "files": list[Path],
        "not_written": list[NotWritten],
        "partial": Annotated[str, "Configurations that they are of; empty for all."],
        "missing": Annotated[int, "Chunks that are not computed yet."],
    },
    about="The files that were written.",
)


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
    changes: SetOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write a run's results to files, with named dimensions and a description of what was measured.

    If a run is not complete, the files contain only its complete configurations, and their attribute
    `partial` says so. Only averages are computed. The exit code is then 1.

    Example: quarkline export workflows/g2_disconnected.yaml --to hdf5

    Example: quarkline export my.yaml --to gvar --to csv --result average
    """
    kinds, averages = _kinds(to, format), result or [AVERAGE]
    for kind in {*kinds} & {*SAMPLED}:
        library(kind)  # before anything is written
    project, results = project_and_store(workflow, store, changes)
    with sound_chunks(results, file := f"{workflow}{project.options}"):
        part = results_of(project, results, file)
    names = [
        (name, kind)
        for name, kind in product(result or part.project.results, kinds)
        if kind not in SAMPLED or name in averages
    ]
    folder = output or part.project.report
    if output is None and (replaced := replaced_report(project)):
        say(f"warning: {replaced}", err=True)
    with sound_chunks(results, file):
        written, missed = _write(names, folder, part.project.workflow.name, results, json)
    missing = len(part.whole.missing)
    if json:
        mark = part.mark(results)
        DOCUMENT.print({"files": written, "not_written": missed, "partial": mark, "missing": missing})
    raise typer.Exit(int(missing > 0))


def _kinds(to: list[Kind] | None, format: str) -> list[Kind]:
    """Kinds of files by either option."""
    if to and format != "both":
        raise InputError(f"--format {format} beside --to: name all kinds by --to")
    return to or ([Kind.ZARR, Kind.HDF5] if format == "both" else [Kind(format)])


def _write(
    names: list[tuple[str, Kind]], folder: Path, workflow: str, store: Store, quiet: bool
) -> tuple[list[Path], list[NotWritten]]:
    """Write a file of each result and kind, and say so; files written, and those of incomplete results."""
    written, missed = [], []
    with writing_into(folder):
        for name, kind in names:
            suffix, write = WRITERS[kind]
            target = folder / f"{name}{suffix}"
            try:
                write(result_to_export(store, name, workflow), target)
            except IncompleteError as error:
                missed.append(NotWritten(target, str(error)))
                say(f"not written: {target}: {error}", err=True)
            else:
                written.append(target)
                say(str(target), err=quiet)
    return written, missed
