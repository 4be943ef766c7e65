"""The engine: stages, chunks and keys; a store of immutable chunks; runs on Dask. It knows no physics.

What stands here is kept stable for stages and workflows of other groups; all else may change. A name is
loaded when it is asked for: a declaration (`stage`, `At`, `Dims`, `Keyed`, `Resources`, `Cost`,
`FromParameter`, `Chunks`) loads no Dask or Zarr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages.base.front_door import front_door

if TYPE_CHECKING:
    from pipeline.declare.coordinates import At, Chunks
    from pipeline.declare.duration import duration_text
    from pipeline.declare.node import Cost, FromParameter, Keyed, Node, Pass, Place, Resources
    from pipeline.declare.signature import Dims
    from pipeline.declare.stage import stage
    from pipeline.declare.text import counted
    from pipeline.planning.chunk import Chunk
    from pipeline.planning.key import node_keys
    from pipeline.planning.plan import Plan, explain, plan
    from pipeline.planning.workflow import LARGEST, Workflow
    from pipeline.reading.account import NodeAccount, accounts
    from pipeline.reading.dashboard.watcher import Dashboard, run
    from pipeline.reading.gc import collect_garbage
    from pipeline.reading.hdf5 import export_hdf5
    from pipeline.reading.report import Details, Figure, Section, Table, table_text, value_with_error
    from pipeline.reading.result import open_result
    from pipeline.reading.status import status
    from pipeline.reading.verification import verify
    from pipeline.running.outcome import Outcome
    from pipeline.running.sharing import Share
    from pipeline.store.checkpoint import FolderCheckpoint
    from pipeline.store.record import Record
    from pipeline.store.store import Store
    from stages.base.errors import InputError
else:
    __all__, __getattr__ = front_door(__name__, __file__)
