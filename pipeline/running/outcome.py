"""The outcome of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted, text_table
from pipeline.running.failures import Failure, Failures
from pipeline.running.run_state import CheckCounts
from pipeline.worker.events import OTHER_CODE, ChunkState

COMPLETE, FAILED, REFUSED, STOPPED, ELSEWHERE = 0, 1, 2, 3, 4
"""Exit statuses. (2 is bad usage, as everywhere: here of workers that have other code. 4: the rest is in work
by other drivers of the store.)"""


ALWAYS_SHOWN = (ChunkState.DONE, ChunkState.FAILED)
"""Columns of the closing table that are there even if no chunk ended so."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. `states` counts, per node, its chunks that were missing before."""

    run: str
    workflow: str
    states: dict[str, Counter[ChunkState]]
    failures: tuple[Failure, ...] = ()
    stopped: str = ""
    """Why the run ended before its work did, empty otherwise."""
    seconds: float = 0.0
    checks: CheckCounts = field(default_factory=CheckCounts)

    def count(self, state: ChunkState) -> int:
        """Chunks of all nodes that ended in this state."""
        return sum(counts[state] for counts in self.states.values())

    @property
    def exit_status(self) -> int:
        """The command's exit code."""
        if self.stopped == OTHER_CODE:
            return REFUSED
        if self.failures or self.count(ChunkState.BLOCKED):
            return FAILED
        if self.count(ChunkState.UNFINISHED):
            return STOPPED
        return ELSEWHERE if self.count(ChunkState.ELSEWHERE) else COMPLETE

    def table(self) -> str:
        """The closing table: what was computed, what is missing and why."""
        if not self.states:
            return f"workflow {self.workflow}: nothing to compute, everything is in the store"
        shown = [each for each in ChunkState if each in ALWAYS_SHOWN or self.count(each)]
        rows = [[node, *(str(counts[state]) for state in shown)] for node, counts in self.states.items()]
        lines = [self._headline(), *text_table(["node", *shown], rows)]
        lines.append(str(self.checks))
        lines += Failures.of(self.failures).lines()
        if elsewhere := self.count(ChunkState.ELSEWHERE):
            lines.append(
                f"{counted(elsewhere, 'chunk')} in work by other drivers: the last of them ends the run"
            )
        if self.exit_status not in (COMPLETE, ELSEWHERE):
            lines.append("run the same command again to compute what is missing, once its cause is removed")
        return "\n".join(lines)

    def _headline(self) -> str:
        missing = sum(map(self.count, (ChunkState.FAILED, ChunkState.BLOCKED, ChunkState.UNFINISHED)))
        ended = f"stopped by {self.stopped}" if self.stopped else "ended"
        unfinished = f", {counted(missing, 'chunk')} missing" if missing else ""
        computed = f"{counted(self.count(ChunkState.DONE), 'chunk')} computed"
        return f"run {self.run} {ended} after {duration_text(self.seconds)}: {computed}{unfinished}"
