"""Progress of a run, gathered on the scheduler from its events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from pipeline.running.failures import Failure, Failures
from pipeline.worker.events import ENDED, LOST, ChunkState, EventKind

SHOWN_CHUNKS = 12
SHOWN_ENDS = (ChunkState.DONE, *LOST)
SHOWN_STATES = (*map(str, SHOWN_ENDS), "running", "waiting")


class RunView:
    """Progress of nodes, histories of chunks and rates of one run."""

    def __init__(self, name: str = "", missing: Mapping[str, int] | None = None) -> None:
        self.name = name
        self.missing = Counter(missing or {})
        self.ended: dict[str, Counter[ChunkState]] = {}
        self.running: dict[str, str] = {}
        self.histories: dict[str, list[tuple[float, float]]] = {}
        """Residuals of the solve that a chunk reported last: (iterations, residual), or units done."""
        self.rates: dict[str, deque[tuple[float, float]]] = {}
        """What chunks reported of their speed (any value named like flops): (time, value)."""
        self.finished: deque[float] = deque(maxlen=10_000)
        self.failures = Failures()

    def add(self, event: dict[str, Any]) -> None:
        """Take an event of a worker into account."""
        kind, key, node = event["event"], event["key"], event["node"]
        if kind == EventKind.STARTED:
            self.running[key] = node
        elif kind == EventKind.PROGRESS:
            self._add_progress(event)
        elif kind in ENDED:
            self.running.pop(key, None)
            state = ChunkState.DONE if kind == ChunkState.PRESENT else ChunkState(kind)
            self.ended.setdefault(node, Counter())[state] += 1
            self.finished.append(event["time"])
            if kind == ChunkState.FAILED:
                self.failures.add(Failure(node, event["coordinates"], event.get("error", "")))

    def _add_progress(self, event: dict[str, Any]) -> None:
        label = " ".join([event["node"], *(str(values[0]) for values in event["coordinates"].values())])
        residual = event.get("residual")
        if isinstance(residual, (int, float)) and residual > 0:
            history, place = self.histories.setdefault(label, []), event.get("iterations", event["done"])
            if history and place <= history[-1][0]:  # another block
                history.clear()
            history.append((place, residual))
            while len(self.histories) > SHOWN_CHUNKS:
                self.histories.pop(next(iter(self.histories)))
        for name, value in event.items():
            if "flops" in name.lower() and isinstance(value, (int, float)):
                self.rates.setdefault(name, deque(maxlen=1000)).append((event["time"], value))

    def counts(self) -> dict[str, list[int]]:
        """Numbers of chunks of each node, per state of `SHOWN_STATES`."""
        nodes = list(self.missing)
        running = Counter(self.running.values())
        ended = [self.ended.get(node, Counter()) for node in nodes]
        columns = {str(state): [counts[state] for counts in ended] for state in SHOWN_ENDS}
        columns["running"] = [min(running[n], self._left(n)) for n in nodes]
        columns["waiting"] = [self._left(n) - k for n, k in zip(nodes, columns["running"], strict=True)]
        return columns

    def _left(self, node: str) -> int:
        return max(0, self.missing[node] - sum(self.ended.get(node, Counter()).values()))

    def throughput(self, width: float = 10.0) -> list[tuple[float, float]]:
        """Pairs (time, chunks a second) in windows of `width` seconds."""
        windows = Counter(int(moment // width) for moment in self.finished)
        if not windows:
            return []
        return [(k * width, windows[k] / width) for k in range(min(windows), max(windows) + 1)]
