"""Documents of the commands about workflows: init, run, plan, status, report, export, schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from pipeline.reading.energy import StageEnergy
from pipeline.reading.status import NodeStatus, RunStatus
from pipeline.store.lock import Driver
from workflows.outputs.output import PRINTED, Output


class InitOutput(Output):
    """The parameter file that was written."""

    command: ClassVar[str] = "init"

    file: Path


class RunOutput(Output):
    """The outcome of a run, of its last round where it has several; `seconds` is of all rounds."""

    command: ClassVar[str] = "run"

    run: str
    workflow: str
    states: dict[str, dict[str, int]]
    """Per node, how many of its missing chunks ended in each state."""
    failures: list[str]
    stopped: str
    """Why the run ended before its work did; empty where it did not."""
    seconds: float
    report: Path | None
    warnings: list[str]
    partial: str | None = None
    """Configurations that the results are of, where they are not of all."""
    error: str | None = None
    """Why the report could not be written."""
    target_met: bool | None = None
    """Of a workflow with a target whose round is complete."""
    target: str | None = None
    checks: dict[str, int]
    """Against silent errors: chunks `repeated` in part, checks that `disagreed`, chunks `retracted`."""


class SubmitOutput(Output):
    """Jobs that were submitted, or cancelled."""

    command: ClassVar[str] = "submit"

    text: str
    """For people; the job's script for a dry run."""
    store: Path
    campaign: str | None = None
    """Name of the campaign, and of its jobs; null where nothing was submitted."""
    jobs: list[str] = Field(default=[])
    """Ids in the batch system."""
    missing: int | None = None
    """Chunks that are to be computed."""
    warnings: list[str] = Field(default=[])


class MissingChunk(BaseModel):
    """A chunk that is to be computed, and why."""

    model_config = PRINTED

    node: str
    stage: str
    key: str
    coordinates: dict[str, list[Any]]
    reason: str
    detail: str


class DeviceTerm(BaseModel):
    """A part of what a GPU holds in a plan's largest task.

    node: that it is of; empty for what is kept of other tasks.
    """

    model_config = PRINTED

    node: str
    term: str
    bytes: int


class GpusPerWorker(BaseModel):
    """GPUs that each worker owns: as asked for, the least on which all fits, and the fastest by a model.

    Both are null where the GPUs are not known, or there is one.
    """

    model_config = PRINTED

    asked: int
    least: int | None
    fastest: int | None


class PlanOutput(Output):
    """Work that a run would do; memory and bytes of what is missing, seconds where earlier chunks tell."""

    command: ClassVar[str] = "plan"

    store: Path
    workflow: str
    backend: str
    chunks: int
    missing: list[MissingChunk]
    memory_bytes: int | None
    stored_bytes: int | None
    seconds: float | None
    device_memory_bytes: int | None
    device_terms: list[DeviceTerm]
    """What these bytes are made of, the largest first."""
    gpus_per_worker: GpusPerWorker
    rounds: list[str]
    warning: str | None
    """What the cluster is short of."""
    remedies: list[dict[str, Any]]
    """Values by key of the parameter file, with each of which the plan fits; null: the key is left out."""
    warnings: list[str]


class DashboardOutput(Output):
    """The pages of a store, served until the command is interrupted; the link holds a secret."""

    command: ClassVar[str] = "dashboard"

    store: Path
    link: str
    port: int
    """On 127.0.0.1."""
    tunnel: str
    """A command line for another machine."""


class StatusOutput(Output):
    """The state of a store."""

    command: ClassVar[str] = "status"

    store: str
    driver: Driver | None
    nodes: list[NodeStatus]
    last_run: RunStatus | None
    checkpoints: list[tuple[str, int]]
    """Stage and bytes of each chunk in flight whose state is kept."""
    left_jobs: list[tuple[str, list[str]]]
    """Runs whose driver is gone, with batch jobs that may be queued still."""
    energy: list[StageEnergy]
    """Joules by stage over all runs whose logs are kept."""
    targets: list[str]
    campaigns: list[str]
    """State of the last campaign of each workflow: its jobs, its cost, why it submits no further ones."""


class ReportOutput(Output):
    """The report that was written."""

    command: ClassVar[str] = "report"

    report: Path
    partial: str
    """Configurations that it is of; empty for all."""
    missing: int
    """Chunks that are not computed yet."""


class NotWritten(BaseModel):
    """A file that could not be written, and why."""

    model_config = PRINTED

    file: Path
    reason: str


class ExportOutput(Output):
    """The files that were written."""

    command: ClassVar[str] = "export"

    files: list[Path]
    not_written: list[NotWritten]
    partial: str
    """Configurations that they are of; empty for all."""
    missing: int
    """Chunks that are not computed yet."""


class SchemaOutput(Output):
    """A JSON schema: of a workflow's parameter file, or of a command's JSON."""

    command: ClassVar[str] = "schema"

    of: str
    content: dict[str, Any]
