"""The engine's share of a run's time.

    python -m workflows.benchmarks.engine_overhead STORE [STAGE]

Reads the events and records of the last run of a store. For each worker and the chunks of a stage (all stages
unless one is named): seconds in the stage, seconds from there to the end of the commit, and seconds
between the end of a chunk and the start of the next one.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import pairwise

from pipeline import Store
from pipeline.running.event_log import read_events, runs


def main(path: str, stage: str | None = None) -> None:
    store = Store(path)
    run = runs(store)[-1]
    started: dict[str, float] = {}
    spans: dict[str, list[tuple[float, float, str, str]]] = defaultdict(list)
    for event in read_events(store, run):
        if event["event"] == "started":
            started[event["key"]] = event["time"]
        elif event["event"] == "done":
            spans[event["worker"]].append(
                (started[event["key"]], event["time"], event["stage"], event["key"])
            )
    print(
        f"run {run}: seconds per worker\n  worker                    chunks  in stages  committing  between"
    )
    for worker, chunks in sorted(spans.items()):
        chunks.sort()
        chosen = [chunk for chunk in chunks if stage in (None, chunk[2])]
        inside = [store.record(name, key)["seconds"] for _, _, name, key in chosen]
        committing = sum(end - begin for begin, end, _, _ in chosen) - sum(inside)
        between = sum(after[0] - before[1] for before, after in pairwise(chunks) if after in chosen)
        print(f"  {worker:24s}  {len(chosen):6d}  {sum(inside):9.2f}  {committing:10.2f}  {between:7.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", help="folder of the store whose last run is looked at")
    parser.add_argument("stage", nargs="?", help="count the chunks of this stage alone")
    arguments = parser.parse_args()
    main(arguments.store, arguments.stage)
