"""How a run ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.declare.coordinates import Coordinates, describe
from pipeline.declare.text import counted, duration, table

COMPLETE, FAILED, STOPPED = 0, 1, 3
"""Exit statuses. (2 is bad usage, as everywhere.)"""

_STATES = ("done", "present", "failed", "blocked", "unfinished")


@dataclass(frozen=True)
class Failure:
    """A chunk whose computation failed."""

    node: str
    coordinates: Coordinates
    error: str

    def __str__(self) -> str:
        return f"{self.node} {describe(self.coordinates)}: {self.error}".replace(" :", ":")


@dataclass(frozen=True)
class Outcome:
    """What a run did. `states` counts, per node: done, present (somebody else committed it meanwhile),
    failed, blocked (an input failed), unfinished."""

    run: str
    workflow: str
    states: dict[str, Counter[str]]
    failures: tuple[Failure, ...] = ()
    stopped: str = ""
    """Why the run ended before its work did, empty otherwise."""
    seconds: float = 0.0

    def count(self, state: str) -> int:
        return sum(counts[state] for counts in self.states.values())

    @property
    def exit_status(self) -> int:
        if self.failures or self.count("blocked"):
            return FAILED
        return STOPPED if self.count("unfinished") else COMPLETE

    def table(self) -> str:
        """The closing table: what was computed, what is missing and why."""
        if not self.states:
            return f"workflow {self.workflow}: nothing to compute, everything is in the store"
        shown = [state for state in _STATES if state in ("done", "failed") or self.count(state)]
        rows = [[node, *(str(counts[state]) for state in shown)] for node, counts in self.states.items()]
        lines = [self._headline(), *table(["node", *shown], rows)]
        lines += self._told()
        if self.exit_status != COMPLETE:
            lines.append("what is missing is computed by the same command, once its cause is gone")
        return "\n".join(lines)

    def _told(self) -> Iterator[str]:
        """Each error once, with what it befell: one damaged file fails every chunk that reads it."""
        befallen: dict[str, dict[str, list[Coordinates]]] = {}
        for failure in self.failures:
            befallen.setdefault(failure.error, {}).setdefault(failure.node, []).append(failure.coordinates)
        for error, nodes in befallen.items():
            if len(nodes) == 1:
                ((node, chunks),) = nodes.items()
                yield f"failed: {_share(node, chunks)}: {error}"
            else:
                yield f"failed: {counted(sum(map(len, nodes.values())), 'chunk')}: {error}"
                yield from (f"  {_share(node, chunks)}" for node, chunks in nodes.items())

    def _headline(self) -> str:
        missing = self.count("failed") + self.count("blocked") + self.count("unfinished")
        ended = f"stopped by {self.stopped}" if self.stopped else "ended"
        rest = f", {counted(missing, 'chunk')} missing" if missing else ""
        computed = f"{counted(self.count('done'), 'chunk')} computed"
        return f"run {self.run} {ended} after {duration(self.seconds)}: {computed}{rest}"


def _share(node: str, chunks: Sequence[Coordinates]) -> str:
    """`loops config=b (2 chunks)`: a node, the coordinates that its failed chunks share, their number."""
    first, *others = chunks
    shared = {dim: values for dim, values in first.items() if all(at[dim] == values for at in others)}
    named = f"{node} {describe(shared)}".rstrip()
    return f"{named} ({counted(len(chunks), 'chunk')})" if others else named
