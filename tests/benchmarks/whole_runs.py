"""Whole runs of many chunks: commits a second, and the memory of the process that drives them and schedules.

    python tests/benchmarks/whole_runs.py [--chunks 100000] [--seconds 0] [--workers 2] [--store FOLDER]

The toy stages of `many_chunks`, a store that is empty at first. A line for each 5,000 chunks that ended,
until all have, or the run has taken so many seconds.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from many_chunks import workflow_of
from pipeline import Store, plan, run
from pipeline.running.clusters.local import Local
from pipeline.running.session import WAVE
from pipeline.worker.events import ENDED
from script import PrintedTable, arguments_of


class Rows:
    """Prints a row for each wave of chunks that ended."""

    def __init__(self) -> None:
        self._table = PrintedTable("chunks", "seconds", "chunks/s", "MB")
        self._began = self._last = time.perf_counter()
        self._process = psutil.Process()
        self._ended = 0

    def __call__(self, event: dict[str, Any]) -> None:
        """Count an event of the run."""
        self._ended += event["event"] in ENDED
        if event["event"] in ENDED and self._ended % WAVE == 0:
            now = time.perf_counter()
            megabytes = self._process.memory_info().rss / 2**20
            self._table.add(self._ended, now - self._began, WAVE / (now - self._last), megabytes)
            self._last = now


def main() -> None:
    """Run the toy workflow in a store that is removed afterwards."""
    options: dict[str, Any] = {"chunks": 100_000, "seconds": 0.0, "workers": 2, "store": "."}
    arguments = arguments_of(__doc__, options=options)
    with tempfile.TemporaryDirectory(dir=arguments.store) as folder:
        store = Store(Path(folder, "store"))
        planned = plan(workflow_of(arguments.chunks), store)
        cluster, limit = Local(workers=arguments.workers), arguments.seconds or None
        print(run(planned, store, cluster=cluster, time_limit=limit, listener=Rows()).table())


if __name__ == "__main__":
    main()
