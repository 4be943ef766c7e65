"""Documents of the commands that move stores and hand them over."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pipeline.reading.handover import JobCost, WorkflowState
from pipeline.reading.status import RunStatus
from workflows.outputs.output import Output


class MovedOutput(Output):
    """Chunks that were brought into a store."""

    store: str
    """Where they were brought."""
    present: int
    """Chunks that were there already."""
    brought: int
    linked: int
    """Those of them that are hard links."""
    nbytes: int
    """Bytes of all that were brought."""
    damaged: list[str]
    """Sentences on chunks that are not what was written, and were left where they are."""
    conflicts: list[str]
    """Sentences on chunks that stores hold with different numbers."""
    notes: list[str]
    """Sentences on plans, histories and ledgers."""
    stages: dict[str, int]
    """Chunks that were brought, by stage."""


class PullOutput(MovedOutput):
    """A store brought from elsewhere."""

    command: ClassVar[str] = "pull"


class PushOutput(MovedOutput):
    """A store sent elsewhere."""

    command: ClassVar[str] = "push"


class MergeOutput(MovedOutput):
    """Several stores brought into one."""

    command: ClassVar[str] = "merge"


class HandoverOutput(Output):
    """Facts that `quarkline status --handover` writes on its page."""

    command: ClassVar[str] = "handover"

    page: Path
    store: str
    written: str
    """Time, UTC."""
    drivers: list[str]
    workflows: list[WorkflowState]
    targets: list[str]
    runs: list[RunStatus]
    codes: dict[str, int]
    """Chunks by version and commit of the code that computed them."""
    devices: dict[str, int]
    """Chunks by machine and device."""
    jobs: list[JobCost]
    campaigns: dict[str, str]
    """Files of what was submitted to a batch system, by name."""
    stops: list[str]
    """Reasons why such a campaign submits no further jobs."""
    damaged: list[str]
    in_flight: list[str]
    """Stages of chunks whose state is kept."""
