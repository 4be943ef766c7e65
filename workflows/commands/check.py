"""`quarkline check`: are these gauge configurations what they claim to be?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workflows.commands.options import say

if TYPE_CHECKING:
    from stages.lqcd.lattice.formats import CheckReport


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Gauge configurations, any format.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one entry per file.")] = False,
) -> None:
    """Verify gauge configurations: format, checksums, header values, plaquette, unitarity.

    Reads ILDG and SciDAC (LIME), NERSC, MILC v5, openQCD and DDalphaAMG. A damaged, truncated or mislabelled
    file is one error; the other files are still checked, and the exit code is 2.

    Example: quarkline check confs/*.ildg
    """
    reports, errors = [], {}
    for path in _progress(files, quiet=json):
        report, error = _examine(path)
        if report:
            reports.append(report)
        if error:
            errors[path] = error
    if json:
        _print_json(files, reports, errors)
    else:
        for report in reports:
            say(_text(report))
    for error in errors.values():
        say(f"error: {error}", err=True)
    if errors:
        raise typer.Exit(2)


def _examine(path: Path) -> tuple[CheckReport | None, str | None]:
    """The contents of a file as far as it can be read, and the fault that was found."""
    from stages.base.errors import InputError
    from stages.lqcd.lattice.formats import check_gauge

    try:
        report = check_gauge(path)
    except InputError as error:
        return None, str(error)
    if report.ok:
        return report, None
    first, *more = report.failures
    others = f" (and {len(more)} more)" if more else ""
    return report, f"{path}: {report.format}, {report.lattice}: {first}{others}; {first.remedy}"


def _progress(files: Sequence[Path], *, quiet: bool) -> Iterable[Path]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(files, "checking", console=console, transient=True, disable=quiet or not console.is_terminal)


def _print_json(files: Sequence[Path], reports: Sequence[CheckReport], errors: dict[Path, str]) -> None:
    from workflows.outputs.files import CheckedFile, CheckOutput

    known = {report.path: report.as_dict() for report in reports}
    listed = [
        CheckedFile(**known.get(path, {"path": path, "ok": False}), error=errors.get(path)) for path in files
    ]
    CheckOutput(files=listed).print()


def _ten_digits(value: float) -> str:
    """Ten decimals; a few digits of what a damaged file may give."""
    return f"{value:.10f}" if abs(value) < 1e3 else f"{value:.3g}"


def _text(report: CheckReport) -> str:
    """A file's report for people."""
    total, spatial, temporal = (_ten_digits(value) for value in report.plaquette)
    held = ", ".join(check.verified for check in report.checks if check.ok)
    lines = [
        f"{report.path}: {report.format}, {report.lattice}, {report.precision} bit",
        f"  plaquette    {total} (spatial {spatial}, temporal {temporal})",
        f"  link trace   {_ten_digits(report.link_trace)}",
        f"  unitarity    |U^dag U - 1| <= {report.unitarity_deviation:.1e}, "
        f"|det U - 1| <= {report.determinant_deviation:.1e}",
        f"  verified     {held or 'nothing'}",
        *(f"  NOTE         {note}" for note in report.notes),
        *(f"  WRONG        {failure}" for failure in report.failures),
    ]
    return "\n".join(lines)
