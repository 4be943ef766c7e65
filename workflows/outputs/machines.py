"""Documents of the commands about a machine: tune, bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from workflows.benchmarks.speed import Speed
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
