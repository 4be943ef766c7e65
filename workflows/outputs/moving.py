"""Documents of the commands that move stores."""

from __future__ import annotations

from typing import ClassVar

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
