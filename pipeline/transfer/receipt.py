"""The outcome of a transfer, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pipeline.declare.text import counted, format_bytes

Listener = Callable[[int, int], None]
"""Called with bytes that were brought, and all that are to be."""

NAMED = 8
"""Chunks that a message names, of those that have the same problem."""


@dataclass
class Receipt:
    """Chunks that a transfer brought into a store, and those that it did not, with the reason."""

    store: str
    """Where they were brought."""
    present: int = 0
    """Chunks that were there already."""
    brought: int = 0
    linked: int = 0
    """Those of them that are hard links."""
    nbytes: int = 0
    """Bytes of all that were brought."""
    damaged: list[str] = field(default_factory=list)
    """Sentences on chunks that are not what was written, and were left where they are."""
    conflicts: list[str] = field(default_factory=list)
    """Sentences on chunks that stores hold with different numbers."""
    notes: list[str] = field(default_factory=list)
    """Sentences on plans, histories and ledgers."""
    stages: Counter[str] = field(default_factory=Counter)
    """Chunks that were brought, by stage."""

    def add(self, stage: str, nbytes: int, linked: bool) -> None:
        """Count a chunk that was brought."""
        self.brought += 1
        self.nbytes += nbytes
        self.linked += linked
        self.stages[stage] += 1

    @property
    def is_whole(self) -> bool:
        """True if nothing was left behind."""
        return not self.damaged

    def __str__(self) -> str:
        how = f", {self.linked} as hard links" if self.linked else ""
        size = f" ({format_bytes(self.nbytes)}{how})" if self.brought else ""
        lines = [
            f"{self.store}: {counted(self.brought, 'chunk')} brought and verified{size}, "
            f"{self.present} there already"
        ]
        lines += [f"  {number} {stage}" for stage, number in sorted(self.stages.items())]
        lines += self.notes
        if self.conflicts:
            lines.append(
                f"{counted(len(self.conflicts), 'chunk')} with other numbers elsewhere, left as named first:"
            )
            lines += shortened(self.conflicts)
        if self.damaged:
            lines.append(f"{counted(len(self.damaged), 'chunk')} damaged and not brought:")
            lines += shortened(self.damaged)
        return "\n".join(lines)


def shortened(lines: Iterable[str]) -> list[str]:
    """The first lines, set in, and how many more there are."""
    lines = list(lines)
    more = [f"  and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    return [*(f"  {line}" for line in lines[:NAMED]), *more]
