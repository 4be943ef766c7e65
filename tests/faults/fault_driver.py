"""The command that faults strike: computes what its store lacks, with the exit codes of `quarkline run`."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dask
import distributed.utils
import fault_stages  # noqa: F401 - for processes that are forked from this one
import strikes

from pipeline import InputError, Share, Store, plan, run
from pipeline.running import driver, event_log
from pipeline.running.clusters import Cluster
from pipeline.running.clusters.choose import choose
from pipeline.running.clusters.local import Local
from pipeline.running.limits import Limits

LIMITS = Limits(stall=30.0, mute=30.0, absence=20.0, silence=5.0, saying=5.0, grace=2.0)
"""Short ones: a fault is to show within a minute what it shows within ten in real runs."""


def cluster_of(options: dict[str, Any]) -> Cluster:
    if address := options.get("cluster"):
        return choose(address, backend=options.get("backend", "cpu"))
    return Local(options.get("workers", 2), options.get("backend", "cpu"))


def share_imports() -> None:
    """Workers are forked from a process that has imported all they need: which takes half of a run's time."""
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_context("forkserver").set_forkserver_preload(["fault_stages", "distributed.nanny"])
    distributed.utils._forkserver_preload_set = True


def main(store_path: str, options: dict[str, Any]) -> int:
    """Plan and run; prints the closing table, or the error."""
    faulthandler.register(signal.SIGUSR1)  # the suite asks a run that hangs where it is
    if path := options.get("path"):
        sys.path.insert(0, path)  # of the workers: here all is imported already
    if options.get("edited"):
        del sys.modules["fault_stages"]  # so that this process, too, has that of the path
    if folder := options.get("folder"):
        os.chdir(folder)
    if options.get("warm"):
        share_imports()
    if options.get("long"):
        event_log.LOG_BYTES, event_log.TALLY_BYTES, event_log.TALLY_INTERVAL = 10_000, 0, -1.0
    driver.LIMITS = LIMITS
    strikes.enlist("driver")
    strikes.passing("start", "driver")
    cluster = cluster_of(options)
    try:
        store = Store(Path(store_path))
        workflow = import_module("fault_stages").workflow()
        planned = plan(workflow, store, backend=cluster.backend)
        share = Share() if options.get("share") else None
        outcome = run(planned, store, cluster=cluster, share=share)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(outcome.table())
    strikes.passing("end", "driver")
    return outcome.exit_status
