"""`quarkline convert`: a gauge configuration in another file format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from stages.lqcd.lattice.formats import GaugeField
from stages.lqcd.lattice.formats.conversion import convert_gauge
from workflows.commands.options import JsonOption
from workflows.documents import Document


@dataclass(frozen=True)
class GaugeFile:
    """A gauge configuration in a file."""

    path: Path
    format: str
    lattice: list[int]
    precision: int
    plaquette: float
    link_trace: float


DOCUMENT = Document(
    "convert",
    {"source": GaugeFile, "target": GaugeFile, "rounding": float},
    about="A field in its old file and in its new one; `rounding` is the largest change of a number.",
)


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A gauge configuration, any format.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    format: Annotated[
        Literal["ildg", "nersc", "milc"] | None,
        typer.Option(help="What to write.", show_default="by OUT's suffix: .ildg or .lime, .nersc, .milc"),
    ] = None,
    precision: Annotated[
        Literal["single", "double"] | None,
        typer.Option(help="Precision of the numbers in OUT.", show_default="that of IN; milc: single"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a gauge configuration in another format: ILDG (with SciDAC's checksum), NERSC, or MILC v5.

    It reads ILDG and SciDAC (LIME), NERSC, MILC v5, openQCD and DDalphaAMG, and verifies IN as `check` does:
    a damaged file, or one whose links are not in SU(3), is not converted. It reads OUT back and compares
    every number before the file appears. If the precision stays the same, so does every bit; MILC v5 files
    have single precision only. The texts in IN's header are not copied.

    Example: quarkline convert l3248.milc l3248.ildg

    Example: quarkline convert --format milc --overwrite conf.0100.lime lat.0100
    """
    done = convert_gauge(source, target, format=format, precision=precision, overwrite=overwrite)
    files = {"source": _facts(source, done.source), "target": _facts(target, done.target)}
    changed = f"rounded, by {done.rounding:.1e} at most" if done.rounding else "unchanged"
    lines = [_text(source, done.source), _text(target, done.target), f"  numbers      {changed}"]
    DOCUMENT.show({**files, "rounding": done.rounding}, text="\n".join(lines), as_json=json)


def _facts(path: Path, field: GaugeField) -> GaugeFile:
    return GaugeFile(
        path=path,
        format=field.format,
        lattice=list(field.lattice.extents),
        precision=field.precision,
        plaquette=field.plaquette.total,
        link_trace=field.statistics.trace,
    )


def _text(path: Path, field: GaugeField) -> str:
    return (
        f"{path}: {field.format}, {field.lattice}, {field.precision} bit\n"
        f"  plaquette    {field.plaquette.total:.15f}\n"
        f"  link trace   {field.statistics.trace:.15f}"
    )
