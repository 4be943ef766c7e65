"""What is committed of a result: its arrays, and the record that says where they come from."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import numpy as np

from pipeline.declare.coordinates import Coordinates
from pipeline.declare.node import Stage
from pipeline.declare.parameter import flattened
from pipeline.planning.key import canonical
from pipeline.store.provenance import code, device, host, plain
from pipeline.worker.work import Work
from quarkline.errors import InputError


def host_arrays(stage: Stage, result: Any, coordinates: Coordinates) -> dict[str, np.ndarray]:
    """The result's arrays in host memory, checked against the declaration."""
    if type(result) is not stage.result:
        raise InputError(
            f"stage {stage.name} must return {stage.result.__name__}, it returned {type(result).__name__}"
        )
    arrays = {}
    known = {**stage.labels, **coordinates}
    for output, value in zip(stage.outputs, result, strict=True):
        array = np.asarray(value.get() if hasattr(value, "get") else value)
        expected = [len(known[dim]) if dim in known else None for dim in output.dims]
        fits = array.ndim == len(expected) and all(
            n in (None, length) for n, length in zip(expected, array.shape, strict=True)
        )
        if not fits or array.dtype.kind not in "biufc":
            shape = ", ".join(f"{dim}={n or '?'}" for dim, n in zip(output.dims, expected, strict=True))
            raise InputError(
                f"output {output.name!r} of stage {stage.name} must be a numeric array with ({shape}), "
                f"got shape {array.shape} of {array.dtype}"
            )
        arrays[output.name] = array
    return arrays


def record_of(work: Work, run: str, statistics: dict[str, Any], started: float) -> dict[str, Any]:
    """The attributes of a chunk: where every number comes from."""
    node, stage, finished = work.node, work.node.stage, time.time()
    return {
        "stage": stage.name,
        "version": stage.version,
        "node": node.name,
        "coordinates": {dim: list(values) for dim, values in work.coordinates.items()},
        "parameters": canonical(flattened(node.parameters), node.name),
        "chunk": node.chunk,
        "inputs": [[source.key for source in sources] for sources in work.inputs or ()],
        "files": {name: {"path": v.path, "sha256": v.digest} for name, v in work.files.items()},
        "backend": node.backend,
        "device": device(node.backend),
        "statistics": plain(statistics),
        "seconds": finished - started,
        "finished": datetime.fromtimestamp(finished, UTC).isoformat(),
        "host": host(),
        "run": run,
        "code": code(),
    }
