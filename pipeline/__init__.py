"""The engine: stages, chunks and keys; a store of immutable chunks; runs on Dask. It knows no physics.

Importing a declaration (`stage`, `At`, `Dims`, `Keyed`, `Resources`, `Cost`, `FromParameter`,
`Chunks`) loads no Dask or Zarr.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipeline.declare.coordinates import At, Chunks
from pipeline.declare.node import Cost, FromParameter, Keyed, Node, Pass, Place, Resources
from pipeline.declare.signature import Dims
from pipeline.declare.stage import stage
from stages.base.errors import InputError

if TYPE_CHECKING:
    from pipeline.planning.plan import Plan, explain, plan
    from pipeline.planning.workflow import Workflow
    from pipeline.reading.dashboard.watcher import run
    from pipeline.reading.gc import collect_garbage
    from pipeline.reading.hdf5 import export_hdf5
    from pipeline.reading.result import open_result
    from pipeline.reading.status import status
    from pipeline.reading.verification import verify
    from pipeline.running.driver import Outcome
    from pipeline.running.sharing import Share
    from pipeline.store.checkpoint import FolderCheckpoint
    from pipeline.store.store import Store

_LAZY = {
    "FolderCheckpoint": "store.checkpoint",
    "Outcome": "running.driver",
    "Plan": "planning.plan",
    "Share": "running.sharing",
    "Store": "store.store",
    "Workflow": "planning.workflow",
    "collect_garbage": "reading.gc",
    "explain": "planning.plan",
    "export_hdf5": "reading.hdf5",
    "open_result": "reading.result",
    "plan": "planning.plan",
    "run": "reading.dashboard.watcher",
    "status": "reading.status",
    "verify": "reading.verification",
}

__all__ = [
    "At",
    "Chunks",
    "Cost",
    "Dims",
    "FolderCheckpoint",
    "FromParameter",
    "InputError",
    "Keyed",
    "Node",
    "Outcome",
    "Pass",
    "Place",
    "Plan",
    "Resources",
    "Share",
    "Store",
    "Workflow",
    "collect_garbage",
    "explain",
    "export_hdf5",
    "open_result",
    "plan",
    "run",
    "stage",
    "status",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'pipeline' has no attribute {name!r}")
    value = getattr(import_module(f"pipeline.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
