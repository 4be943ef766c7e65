"""`quarkline check`: are these gauge configurations what they claim to be?"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TimeRemainingColumn

from pipeline.declare.text import literal
from stages.base.errors import InputError
from stages.lqcd.analysis.milc_ensembles import Ensemble, milc_ensemble, own_ensembles
from stages.lqcd.lattice.formats import Check, CheckReport, check_gauge
from stages.lqcd.lattice.geometry import Lattice
from workflows.display import progress_bar
from workflows.documents import Document
from workflows.terminal import say


@dataclass(frozen=True)
class HeldCheck:
    """One thing that was verified about a file."""

    name: str
    expected: str | float | None
    found: str | float | None
    ok: bool
    digits: int | None = None
    """Of a number printed in a header that holds: how many digits after the point agree."""


@dataclass(frozen=True)
class CheckedFile:
    """A gauge configuration as far as it could be read."""

    path: Path
    ok: bool
    error: str | None
    format: str | None = None
    lattice: list[int] | None = None
    precision: int | None = None
    plaquette: dict[str, float | None] | None = None
    link_trace: float | None = None
    unitarity_deviation: float | None = None
    determinant_deviation: float | None = None
    checks: list[HeldCheck] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


DOCUMENT = Document("check", {"files": list[CheckedFile]}, about="One entry per file, in the order given.")


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Gauge configurations, any format.")],
    ensemble: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Compare with this MILC ensemble, or one of --table.", show_default=False
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML file with a group's own ensembles.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one entry per file.")] = False,
) -> None:
    """Verify gauge configurations: format, checksums, header values, plaquette, unitarity.

    It reads ILDG and SciDAC (LIME), NERSC, MILC v5, openQCD and DDalphaAMG. A damaged, truncated or
    mislabelled file gives one error; the other files are still checked, and the exit code is 2.

    With --ensemble the lattice, and beta where a header states it, must be those of a published ensemble.

    Example: quarkline check confs/*.ildg

    Example: quarkline check --ensemble l4864f211b600m00184m0507m628 confs/*.ildg
    """
    if table and not ensemble:
        raise InputError("--table needs --ensemble NAME, one of the ensembles in it")
    published = milc_ensemble(ensemble, own_ensembles(table)) if ensemble else None
    reports, errors = [], {}
    with progress_bar("checking", TimeRemainingColumn(), quiet=json) as listener:
        for number, path in enumerate(files):
            listener(number, len(files))
            report, error = _examine(path, published)
            if report:
                reports.append(report)
            if error:
                errors[path] = error
    if json:
        known = {report.path: report.as_dict() for report in reports}
        listed = [
            {**known.get(path, {"path": path, "ok": False}), "error": errors.get(path)} for path in files
        ]
        DOCUMENT.print({"files": listed})
    else:
        for report in reports:
            say(_text(report))
    for error in errors.values():
        say(literal(f"error: {error}"), err=True)
    if errors:
        raise typer.Exit(2)


BETA = re.compile(r"\bbeta(?:11)?\s*[=:]\s*([\d.]+)", re.IGNORECASE)
"""Where headers state it, as 10 / g^2."""


def _compared(report: CheckReport, published: Ensemble) -> CheckReport:
    """The report with what the ensemble says of lattice and beta."""
    remedy = f"is it a configuration of {published.name}?"
    lattice, wanted = report.lattice, Lattice(published.extents)
    checks = [Check(f"lattice of {published.name}", str(wanted), str(lattice), lattice == wanted, remedy)]
    texts = [f"{name}={value}" for name, value in report.metadata.items()]
    for stated in dict.fromkeys(match[1].rstrip(".") for text in texts for match in BETA.finditer(text)):
        right = abs(float(stated) - published.beta) < 1e-3
        checks.append(Check(f"beta of {published.name}", published.beta, float(stated), right, remedy))
    return replace(report, checks=(*report.checks, *checks))


def _examine(path: Path, published: Ensemble | None) -> tuple[CheckReport | None, str | None]:
    """The contents of a file as far as it can be read, and the fault that was found."""
    try:
        report = check_gauge(path)
    except InputError as error:
        return None, str(error)
    if published:
        report = _compared(report, published)
    if report.ok:
        return report, None
    first, *more = report.failures
    others = f" (and {len(more)} more)" if more else ""
    return report, f"{path}: {report.format}, {report.lattice}: {first}{others}; {first.remedy}"


def _ten_digits(value: float) -> str:
    """Ten decimals; a few digits of what a damaged file may give."""
    return f"{value:.10f}" if abs(value) < 1e3 else f"{value:.3g}"


def _text(report: CheckReport) -> str:
    """A file's report for people."""
    total, spatial, temporal = (_ten_digits(value) for value in report.plaquette)
    held = ", ".join(check.verified for check in report.checks if check.ok)
    lines = [
        f"{literal(str(report.path))}: {report.format}, {report.lattice}, {report.precision} bit",
        f"  plaquette    {total} (spatial {spatial}, temporal {temporal})",
        f"  link trace   {_ten_digits(report.link_trace)}",
        f"  unitarity    |U^dag U - 1| <= {report.unitarity_deviation:.1e}, "
        f"|det U - 1| <= {report.determinant_deviation:.1e}",
        f"  verified     {held or 'nothing'}",
        *(f"  NOTE         {note}" for note in report.notes),
        *(f"  WRONG        {failure}" for failure in report.failures),
    ]
    return "\n".join(lines)
