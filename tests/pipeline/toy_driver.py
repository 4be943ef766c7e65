"""A driver in a process of its own, to be killed: `python toy_driver.py STORE [key=value ...]`."""

from __future__ import annotations

import sys
from pathlib import Path

import toy_stages as toys

from pipeline import InputError, Place, Store, Workflow, plan, run
from pipeline.running.clusters.local import Local

CONFIGS = ("a", "b", "c")


def workflow() -> Workflow:
    """Eighteen chunks in four stages, one of them transient."""
    w = Workflow("toy")
    field = w.add(toys.field, place=Place(over={"config": CONFIGS}))
    loops = w.add(toys.loops, field, place=Place(over={"noise": range(6)}, chunk={"noise": 2}), mass=0.5)
    bulk = w.add(toys.bulk, field, place=Place(over={"noise": range(2)}))
    w.add(toys.first, bulk)
    w.add(toys.mean, loops)
    return w


def long_workflow() -> Workflow:
    """Two chunks of forty steps each, which keep their state."""
    w = Workflow("long")
    w.add(toys.steps, place=Place(over={"config": ("a", "b")}), number=40)
    return w


def main(store_path: str, *options: str) -> int:
    given = dict(option.split("=") for option in options)
    store = Store(Path(store_path))
    limit = float(given["time_limit"]) if "time_limit" in given else None
    cluster = Local(workers=int(given.get("workers", 2)))
    try:
        work = long_workflow() if "long" in given else workflow()
        outcome = run(plan(work, store), store, cluster=cluster, time_limit=limit, grace=2.0)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(outcome.table())
    return outcome.exit_status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
