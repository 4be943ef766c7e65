"""The engine: stages, chunks and keys; a store of immutable chunks; runs on Dask. It knows no physics.

Importing a declaration (`stage`, `At`, `Dims`, `Resources`, `Chunks`) loads neither Dask nor Zarr.
No module is named like a function here: importing it would hide the function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipeline.coordinates import At, Chunks
from pipeline.errors import UserError
from pipeline.signature import Dims
from pipeline.stage import Resources, stage

if TYPE_CHECKING:
    from pipeline.checkpoint import FolderCheckpoint
    from pipeline.driver import Outcome, run
    from pipeline.garbage import collect_garbage
    from pipeline.node import Node
    from pipeline.overview import status
    from pipeline.planning import Plan, plan
    from pipeline.result import export_hdf5, open_result
    from pipeline.store import Store
    from pipeline.verification import verify
    from pipeline.workflow import Workflow

_LAZY = {
    "FolderCheckpoint": "checkpoint",
    "Node": "node",
    "Outcome": "driver",
    "Plan": "planning",
    "Store": "store",
    "Workflow": "workflow",
    "collect_garbage": "garbage",
    "export_hdf5": "result",
    "open_result": "result",
    "plan": "planning",
    "run": "driver",
    "status": "overview",
    "verify": "verification",
}

__all__ = [
    "At",
    "Chunks",
    "Dims",
    "FolderCheckpoint",
    "Node",
    "Outcome",
    "Plan",
    "Resources",
    "Store",
    "UserError",
    "Workflow",
    "collect_garbage",
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
