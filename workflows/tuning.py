"""Measuring the kernels of a workflow on the GPU at hand, and the table of what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from pipeline.declare.duration import duration_text
from pipeline.reading.report import Table, table_text
from stages.base.errors import InputError
from stages.lqcd.kernels.cuda.tuning.table import Finding, merge_into_table, table_path
from workflows.shared.definition import Project

COLUMNS = ["kernel", "model, us", "best, us", "gain", "chosen instead"]

Progress = Callable[[int, int, str], None]
"""Called with (parts done, parts in all, the problem being measured)."""


@dataclass(frozen=True)
class Tuning:
    """Outcome of tuning: the measurements, the file that they were written to, and the time it took."""

    device: str
    file: Path
    findings: list[Finding]
    unmeasured: list[str]
    seconds: float


def tune(project: Project, progress: Progress) -> Tuning:
    """Measure every kernel that the workflow uses in all of its candidate shapes; the best go to the table.

    Raises:
        InputError: no GPU, or a table that cannot be written.
    """
    require_device()
    import cupy

    from stages.lqcd.kernels.cuda.tuning.choice import current_device
    from stages.lqcd.kernels.cuda.tuning.tuner import Tuner, entry_of

    device, started, parts = current_device(), perf_counter(), (0, 0)
    file = table_path(device)
    merge_into_table(file, device, {})  # fails before the work rather than after it
    tuner = Tuner(lambda problem: progress(*parts, problem.name))
    with tuner.at_work():
        for parts in project.rehearse(cupy):
            progress(*parts, "")
    merge_into_table(file, device, {finding.key: entry_of(finding) for finding in tuner.findings})
    return Tuning(device.name, file, tuner.findings, tuner.unmeasured, perf_counter() - started)


def require_device() -> None:
    """Raise InputError where there is no GPU that CuPy can use."""
    try:
        import cupy

        if cupy.is_available():
            return
        why = "there is no CUDA device here"
    except ImportError:
        why = "CuPy is not installed"
    raise InputError(
        f"quarkline tune times kernels on a GPU, and {why}: run it on a machine with one, "
        "with quarkline[cuda13] or [cuda12] installed; runs without it take shapes that suit an H200"
    )


def tuning_text(tuning: Tuning) -> str:
    """A table of the findings, the largest gain first, and where they were written."""
    rows = [row(finding) for finding in by_gain(tuning.findings)]
    changed = sum(finding.shape != finding.model for finding in tuning.findings)
    lines = [table_text(Table(COLUMNS, rows))]
    lines += [f"not measured: {name}" for name in tuning.unmeasured]
    lines += [
        f"rejected: {finding.problem}: {shape}" for finding in tuning.findings for shape in finding.rejected
    ]
    lines.append(
        f"{len(rows)} kernels on {tuning.device} in {duration_text(tuning.seconds)}, "
        f"{changed} of them faster in another shape than the model's: {tuning.file}"
    )
    return "\n".join(lines)


def by_gain(findings: Sequence[Finding]) -> list[Finding]:
    """Findings, the largest gain first."""
    return sorted(findings, key=lambda finding: finding.seconds / finding.model_seconds)


def row(finding: Finding) -> tuple[str, ...]:
    """A finding in `COLUMNS`."""
    changed = ((name, value) for name, value in finding.shape.items() if value != finding.model[name])
    return (
        finding.problem,
        f"{1e6 * finding.model_seconds:.1f}",
        f"{1e6 * finding.seconds:.1f}",
        f"{100 * (1 - finding.seconds / finding.model_seconds):.1f} %",
        " ".join(f"{name}={value}" for name, value in changed),
    )
