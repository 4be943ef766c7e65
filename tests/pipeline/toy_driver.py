"""A driver in a process of its own, to be killed: `python toy_driver.py STORE [key=value ...]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import toy_stages as toys

from pipeline import InputError, Place, Share, Store, Workflow, plan, run
from pipeline.running import driver
from pipeline.running.clusters.local import Local
from pipeline.running.limits import Limits

CONFIGS = ("a", "b", "c")


def workflow() -> Workflow:
    """Eighteen chunks in four stages, one of them transient."""
    return workflow_of(CONFIGS)


def workflow_of(configs: Sequence[str]) -> Workflow:
    """Likewise of any configurations: five chunks for each, and three for all."""
    w = Workflow("toy")
    field = w.add(toys.field, place=Place(over={"config": tuple(configs)}))
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
    driver.LIMITS = Limits(grace=2.0)
    given = dict(option.split("=") for option in options)
    store = Store(Path(store_path))
    limit = float(given["time_limit"]) if "time_limit" in given else None
    cluster = Local(workers=int(given.get("workers", 2)))
    share = Share(waits=given["share"] == "wait") if "share" in given else None
    try:
        work = long_workflow() if "long" in given else workflow_of(given.get("configs", "".join(CONFIGS)))
        outcome = run(plan(work, store), store, cluster=cluster, time_limit=limit, share=share)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(outcome.table())
    return outcome.exit_status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
