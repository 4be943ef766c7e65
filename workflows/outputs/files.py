"""Documents of the commands about files and stores: check, convert, verify, gc."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from pipeline.reading.verification import Damage
from workflows.outputs.output import PRINTED, Output


class HeldCheck(BaseModel):
    """One thing that was verified about a file."""

    model_config = PRINTED

    name: str
    expected: str | float | None
    found: str | float | None
    ok: bool
    digits: int | None = None
    """Of a number printed in a header that holds: how many digits after the point agree."""


class CheckedFile(BaseModel):
    """A gauge configuration as far as it could be read."""

    model_config = PRINTED

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
    checks: list[HeldCheck] = []
    metadata: dict[str, str] = {}
    notes: list[str] = []


class CheckOutput(Output):
    """One entry per file, in the order given."""

    command: ClassVar[str] = "check"

    files: list[CheckedFile]


class GaugeFile(BaseModel):
    """A gauge configuration in a file."""

    model_config = PRINTED

    path: Path
    format: str
    lattice: list[int]
    precision: int
    plaquette: float
    link_trace: float


class ConvertOutput(Output):
    """A field in its old file and in its new one; `rounding` is the largest change of a number."""

    command: ClassVar[str] = "convert"

    source: GaugeFile
    target: GaugeFile
    rounding: float


class VerifyOutput(Output):
    """Findings of rereading a store."""

    command: ClassVar[str] = "verify"

    checked: int
    damaged: list[Damage]
    removed: bool
    """Whether damaged chunks were taken away."""
    unreadable: list[Damage]
    unsealed: int
    """Chunks of format 1, whose record has no digest of its own."""


class GcOutput(Output):
    """Chunks (stage and key) that no workflow reaches, and the bytes that they take."""

    command: ClassVar[str] = "gc"

    chunks: list[tuple[str, str]]
    kept: int
    nbytes: int
    removed: bool
    """False where `--dry-run` only asked."""
    checkpoints: int
    others: list[str]
    """Workflows that were run into the store, were not given, and lose chunks."""
    losses: dict[str, int]
    """Chunks and checkpoints that each past plan loses, by its file and day."""
    foreign: list[str]
    """Files in the store that are none of its own; they are left alone."""
