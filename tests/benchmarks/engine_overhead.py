"""The engine's share of a run's time.

    python tests/benchmarks/engine_overhead.py STORE STAGE

Reads the events and records of the last run of a store. For each worker and the chunks of a stage: seconds in
the stage, seconds from there to the end of the commit, and seconds between the end of a chunk and the start
of the next one.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from pipeline import Store
from pipeline.running.event_log import read_events, runs
from script import PrintedTable, arguments_of


def main() -> None:
    """Print a line for each worker."""
    arguments = arguments_of(__doc__, "store", "stage")
    store, stage = Store(arguments.store), arguments.stage
    started: dict[str, float] = {}
    spans: dict[str, list[tuple[float, float, str, str]]] = defaultdict(list)
    for event in read_events(store, runs(store)[-1]):
        if event.kind == "started":
            started[event.key] = event.time
        elif event.kind == "done":
            span = started[event.key], event.time, event.stage, event.key
            spans[event.worker].append(span)
    table = PrintedTable("worker", "chunks", "s in stages", "s committing", "s between")
    for worker, chunks in sorted(spans.items()):
        chunks.sort()
        chosen = [chunk for chunk in chunks if chunk[2] == stage]
        inside = sum(store.record(name, key)["seconds"] for _, _, name, key in chosen)
        committing = sum(end - begin for begin, end, _, _ in chosen) - inside
        between = sum(after[0] - before[1] for before, after in pairwise(chunks) if after in chosen)
        table.add(worker, len(chosen), inside, committing, between)


if __name__ == "__main__":
    main()
