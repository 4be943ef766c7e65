"""A store of many chunks with whole records, made in seconds: for pages and commands that read all of them.

    python tests/benchmarks/recorded_chunks.py [--chunks 100000] [--store FOLDER]

The chunks are those of `many_chunks`. One of each node is written as a run would; the others are copies of
its file whose record has their own coordinates, key and seal, and figures that differ from chunk to chunk.
"""

from __future__ import annotations

import sys
import zipfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from many_chunks import workflow_of
from pipeline import Plan, Store, plan
from pipeline.planning.chunk import Chunk
from pipeline.planning.manifest_files import write_manifest
from pipeline.running.event_log import EventLog
from pipeline.store.group import GroupContent, write_packed
from pipeline.store.record import canonical_json, sealed
from pipeline.store.shelves import PACKED, shelf_of
from pipeline.worker.events import ChunkState, Event, EventKind, chunk_identity
from script import arguments_of

BEGAN = 1_790_000_000.0
"""Seconds since 1970 of the first chunk's end; each ends a hundredth of a second after the one before."""


class Writer:
    """Writes chunks of a plan into its store, without flushing them."""

    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run = store, run
        self._files: dict[str, dict[str, bytes]] = {}
        self._content: dict[str, Any] = {}

    def write(self, chunk: Chunk, number: int) -> None:
        """Write a chunk whose place in the order of ends is this number."""
        stage = chunk.node.stage.name
        if stage not in self._files:
            self._first(chunk)
        record = sealed({**self._content[stage]["attributes"], **self._record(chunk, number)})
        content = canonical_json({**self._content[stage], "attributes": record})
        target = BytesIO()
        with zipfile.ZipFile(target, "w") as archive:
            for name, data in self._files[stage].items():
                archive.writestr(name, content if name == "zarr.json" else data)
        shelf = shelf_of(self.store.path / stage, chunk.key)
        shelf.mkdir(parents=True, exist_ok=True)
        draft = self.store.temporary / chunk.key
        draft.write_bytes(target.getvalue())
        draft.rename(shelf / f"{chunk.key}{PACKED}")

    def _first(self, chunk: Chunk) -> None:
        import json

        outputs = {output.name: output.dims for output in chunk.node.stage.outputs}
        arrays = {
            name: np.arange(8.0).reshape((-1,) + (1,) * (len(dims) - 1)) for name, dims in outputs.items()
        }
        content = GroupContent(arrays, outputs, {"stage": chunk.node.stage.name, "key": chunk.key}, {})
        with zipfile.ZipFile(BytesIO(write_packed(content))) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        self._files[chunk.node.stage.name] = files
        self._content[chunk.node.stage.name] = json.loads(files["zarr.json"])

    def _record(self, chunk: Chunk, number: int) -> dict[str, Any]:
        return {
            "stage": chunk.node.stage.name,
            "key": chunk.key,
            "node": chunk.node.name,
            "coordinates": {dim: list(values) for dim, values in chunk.coordinates.items()},
            "statistics": {"history": [1.0, 1e-3 / (1 + number % 7), 1e-9], "gflops": 100.0 + number % 10},
            "seconds": 0.5 + (number % 4) / 8,
            "joules": 200.0 + number % 16 if number % 2 else None,
            "device_bytes": 1_000_000 + number % 1000,
            "finished": datetime.fromtimestamp(BEGAN + number / 100, UTC).isoformat(),
            "run": self.run,
        }


def fill(store: Store, chunks: int, left: int = 1) -> Plan:
    """Write all chunks of a workflow but the last ones, their manifest, and the log of a run that goes on."""
    store.create()
    planned = plan(workflow_of(chunks), store)
    write_manifest(store, planned.workflow, planned.backend, planned.everything, planned.about)
    with EventLog(store, "run") as log:
        missing = {node.name: 0 for node in workflow_of(chunks).nodes.values()}
        log(Event(EventKind.RUN_STARTED, run="run", workflow=planned.workflow, missing=missing))
        writer = Writer(store, "run")
        for number, chunk in enumerate(planned.everything[: len(planned.everything) - left]):
            writer.write(chunk, number)
            about = chunk_identity(chunk.node.name, chunk.node.stage.name, chunk.key, chunk.coordinates)
            for kind in (EventKind.STARTED, ChunkState.DONE):
                log(Event(kind, BEGAN + number / 100, "tls://127.0.0.1:40000", **about))
    return planned


def main() -> None:
    """Make the store in a folder."""
    arguments = arguments_of(__doc__, options={"chunks": [100_000], "store": "."})
    planned = fill(Store(Path(arguments.store)), int(arguments.chunks[0]))
    print(f"{len(planned.everything)} chunks", file=sys.stderr)


if __name__ == "__main__":
    main()
