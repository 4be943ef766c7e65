"""Seconds from `quarkline run` to the first committed chunk of a solve, with kernels compiled before.

    python tests/benchmarks/first_chunk.py FOLDER [--cluster cuda local] [--lattice 16 16 16 32] [--repeats 2]

The workflow of `tests/benchmarks/gpu_job.py`. The first run in a folder makes the configurations, and on each
cluster compiles; others do the same work with other noises. Times are those of the run's log, from the start
of the command.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

from gpu_job import COMMANDS, GUARDED, WORKFLOW
from pipeline import Store
from pipeline.running.event_log import read_events, runs
from pipeline.worker.events import ChunkState, EventKind
from script import PrintedTable, arguments_of

SOLVE = "solve "
MARKS = {
    "run started": EventKind.RUN_STARTED,
    "cluster ready": EventKind.CLUSTER_READY,
    "first chunk started": EventKind.STARTED,
    "of a solve": SOLVE + EventKind.STARTED,
    "committed": SOLVE + ChunkState.DONE,
    "run ended": EventKind.RUN_ENDED,
}
"""Columns, and events whose first counts."""


def main() -> None:
    """Print a line for each run."""
    options = {"cluster": ["cuda", "local"], "light": 0.02, "strange": 0.06, "vectors": 2, "repeats": 2}
    arguments = arguments_of(__doc__, "folder", lattice=(16, 16, 16, 32), options=options)
    folder = Path(arguments.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "quarkline").write_text(GUARDED.format(python=sys.executable, imports=COMMANDS["quarkline"]))
    values = {**vars(arguments), "extents": list(arguments.lattice.extents)}
    table, seeds = PrintedTable("cluster", *(f"{mark}, s" for mark in MARKS)), count(int(time.time()))
    for cluster in arguments.cluster:
        for number in range(1 + arguments.repeats):
            (folder / "g2.yaml").write_text(WORKFLOW.format(**values, seed=next(seeds)))
            table.add(f"{cluster}{'' if number else ', first'}", *run(folder, cluster))


def run(folder: Path, cluster: str) -> list[float]:
    """Seconds of the marks in a run."""
    command = [sys.executable, "quarkline", "run", "g2.yaml", "--cluster", cluster]
    path = f"{Path(__file__).parents[2]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    shell = {**os.environ, "PYTHONPATH": path}
    begin = time.time()
    done = subprocess.run(command, cwd=folder, env=shell, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    store = Store(folder / "store")
    first: dict[str, float] = {}
    for event in read_events(store, runs(store)[-1]):
        for kind in (event.kind, *([SOLVE + event.kind] if event.node.startswith("loops") else [])):
            first.setdefault(kind, event.time - begin)
    return [first[kind] for kind in MARKS.values()]


if __name__ == "__main__":
    main()
