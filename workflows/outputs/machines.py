"""Documents of the commands about a machine: tune, bench, certify."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from pipeline.worker.certificate import Subject
from workflows.benchmarks.speed import Speed
from workflows.certification.check import Check
from workflows.outputs.output import PRINTED, Output


class TunedKernel(BaseModel):
    """Result of measuring one problem: shapes, and seconds per call."""

    model_config = PRINTED

    problem: str
    key: str
    model: dict[str, Any]
    model_seconds: float
    shape: dict[str, Any]
    seconds: float
    candidates: int
    rejected: list[str]


class TuneOutput(Output):
    """Measured launch shapes, and the table that they were written to."""

    command: ClassVar[str] = "tune"

    device: str
    file: Path
    findings: list[TunedKernel]
    unmeasured: list[str]
    seconds: float


class BenchOutput(Output):
    """Speeds, beside the machine's own copy bandwidth in GB/s."""

    command: ClassVar[str] = "bench"

    machine: str
    backend: str
    copy_bandwidth: float
    lines: list[Speed]


class CertifyOutput(Output):
    """All checks of a machine, and the certificate where none failed."""

    command: ClassVar[str] = "certify"

    subject: Subject
    full: bool
    date: str
    checks: list[Check]
    seconds: float
    certified: bool
    id: str | None
    """The certificate's, null where a check failed."""
    file: Path | None
    withdrawn: list[str]
    """Earlier certificates of the same machine, device and code that are taken back."""
