"""Cases of `device_memory`: shipped files with some keys changed; their chunks, computed as by a worker."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from pipeline import At, Node, Place, Plan, Store, plan, stage
from pipeline.planning.chunk import Chunk
from pipeline.running.graph import work_of
from pipeline.running.memory_advice import Footprint, costs_of
from pipeline.worker.events import ChunkState
from pipeline.worker.memory import device_pool
from pipeline.worker.resident import drop_all
from pipeline.worker.sources import sources_of
from pipeline.worker.task import execute
from pipeline.worker.work import RunContext
from stages.base.gpus import gpus_of
from stages.ensemble.configuration import GaugeLinks
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.kernels.dispatch import array_module_of
from stages.lqcd.kernels.transfer import copy_to_host
from stages.lqcd.lattice.geometry import Lattice
from workflows.catalogue import definition_of
from workflows.parameter_file import read_parameter_file
from workflows.shared.definition import Definition, Project
from workflows.starters import OWN_FILES

BACKEND = "cuda"
ROOM = 1 << 40
"""More than any GPU has: all that a chunk uses again stays."""


@cache
def links(extents: tuple[int, int, int, int]) -> np.ndarray:
    """Links of two sweeps at beta = 6 in the host's memory, once in a process."""
    lattice = Lattice(extents)
    return copy_to_host(thermalised(lattice, 6.0, 31, "memory", 2, 0, xp=array_module_of(BACKEND)))


@stage(version="1", over=("config",), transient=True)
def ready_configuration(*, at: At, extents: tuple[int, int, int, int]) -> GaugeLinks:
    """Links that lie in the host's memory before a chunk begins."""
    return GaugeLinks(links(extents), np.array(extents))


def on_ready_links(nodes: Definition[Any]) -> Node:
    """The node of configurations, of links that are ready."""
    place = Place("configuration", over={"config": nodes.ensemble.labels})
    return nodes.workflow.add(ready_configuration, place=place, extents=nodes.lattice.extents)


@dataclass(frozen=True)
class Case:
    """A shipped file on a lattice, with values at dotted keys; None takes a key out."""

    workflow: str
    extents: tuple[int, int, int, int]
    changes: dict[str, Any]

    def plan(self, folder: Path) -> tuple[Plan, Store]:
        """Plan of one configuration, with an empty store."""
        values: Any = read_parameter_file(OWN_FILES / f"{self.workflow}.yaml").values
        heatbath = {"ensemble.heatbath.extents": list(self.extents), "ensemble.heatbath.configurations": 1}
        for key, value in {**heatbath, **self.changes}.items():
            put(values, key, value)
        file = folder / "case.yaml"
        file.write_text(
            json.dumps({**values, "store": str(folder / "store"), "report": str(folder / "report")})
        )
        ready = {"configuration": cached_property(on_ready_links)}
        definition = type("OnReadyLinks", (definition_of(self.workflow),), ready)
        project = Project.of(definition, read_parameter_file(file))
        store = Store(project.store)
        store.create()
        return plan(project.workflow, store, backend=BACKEND), store


def put(values: Any, key: str, value: Any) -> None:
    """Set or, for None, remove what stands at a dotted key."""
    *sections, name = key.split(".")
    for each in sections:
        values = values.setdefault(each, {})
    if value is None:
        del values[name]
    else:
        values[name] = deepcopy(value)


SIDE_12, SIDE_16 = (12, 12, 12, 24), (16, 16, 16, 32)
G2: dict[str, Any] = {
    "masses": {"light": 0.3, "strange": 0.6},
    "noise.vectors": 4,
    "solves.fine": None,
}
"""Loops of four noise vectors: one chunk a mass."""
QUARK: dict[str, Any] = {"quark": {"mass": 0.3, "csw": 1.0, "boundary": "antiperiodic"}}


def g2(extents: tuple[int, int, int, int], solver: str, precision: str, block: int, **more: Any) -> Case:
    """Loops by a solver."""
    solves = {"solves.solver": solver, "solves.precision": precision, "solves.block": block}
    return Case("g2_disconnected", extents, {**G2, **solves, **more})


def mesons(extents: tuple[int, int, int, int], solver: str, precision: str, **more: Any) -> Case:
    """Propagators of a point."""
    solves = {"solves.solver": solver, "solves.precision": precision}
    return Case("mesons", extents, {**QUARK, **solves, **more})


def laph(extents: tuple[int, int, int, int], solver: str, precision: str, vectors: int, **more: Any) -> Case:
    """Distillation from one slice."""
    solves = {"solves.solver": solver, "solves.precision": precision}
    space = {"distillation.vectors": vectors, "sources.times": [0], "smearing.steps": 1}
    return Case("laph_mesons", extents, {**QUARK, **solves, **space, **more})


MODES = {"deflation": {"vectors": 48, "block": 8, "tolerance": 1e-4}}
CASES = {
    "cgrq": g2(SIDE_16, "block_cgrq", "double-single", 16),
    "cg narrow": g2(SIDE_16, "batched_cg", "double-single", 8),
    "cg double": g2(SIDE_12, "batched_cg", "double", 32),
    "cgrq double": g2((16, 16, 16, 16), "block_cgrq", "double", 12),
    "cg wide": g2(
        (12, 12, 12, 12), "batched_cg", "double-single", 48, **{"noise.vectors": 8, "noise.chunk": 8}
    ),
    "smeared current": g2(SIDE_12, "block_cgrq", "double-single", 4, **{"current.links": "smeared"}),
    "low modes": g2(
        SIDE_12, "block_cgrq", "double-single", 16, **MODES, **{"estimator": {"low_modes": True}}
    ),
    "hisq mesons": Case("hisq_mesons", SIDE_16, {"sources.times": [0], "quark.mass": 0.3}),
    "bicgstab": mesons(SIDE_16, "bicgstab", "double-single"),
    "bicgstab double": mesons(SIDE_12, "bicgstab", "double"),
    "cgnr": mesons(SIDE_12, "cgnr", "double-single", **{"quark.csw": 0.0, "solves.block": 6}),
    "gcr": mesons((12, 12, 12, 12), "gcr", "double"),
    "multigrid": mesons(SIDE_16, "multigrid", "double-single"),
    "laph": laph(SIDE_12, "bicgstab", "double-single", 24),
    "laph single": laph(
        SIDE_12, "cgnr", "double", 16, **{"distillation.precision": "single", "distillation.tolerance": 2e-5}
    ),
    "large": g2((48, 48, 48, 64), "block_cgrq", "double-single", 16),
}
BEYOND = "large"
"""Measured where it is asked for alone."""


class Measured(NamedTuple):
    """A chunk's task, and bytes of the GPU, of several that of which most is taken."""

    node: str
    projected: int
    mark: int


def measured(name: str) -> list[Measured]:
    """The chunks of a case whose tasks take memory of a GPU, the first of each node."""
    with TemporaryDirectory() as folder:
        made, store = CASES[name].plan(Path(folder))
        links(CASES[name].extents)
        return list(_chunks(made, store))


def _chunks(made: Plan, store: Store) -> Iterator[Measured]:
    costs, pool = costs_of(made, gpus_of(BACKEND)), device_pool(BACKEND)
    least = {chunk.key: Footprint.of([chunk]).least(costs) for chunk in made.missing}
    distinct = {(chunk.node.stage.name, least[chunk.key]): chunk for chunk in reversed(made.missing)}
    wanted = [chunk for chunk in made.missing if least[chunk.key] and chunk in distinct.values()]
    needed = {chunk.key for chunk in (*wanted, *(each for chunk in wanted for each in _above(chunk)))}
    sources = sources_of({chunk.node.stage.function for chunk in made.everything})
    context = RunContext(store, "run", BACKEND, ROOM, sources)
    for chunk in made.missing:
        if chunk.key not in needed:
            continue
        drop_all()
        gc.collect()
        if pool:
            pool.release_unused()
        (outcome,) = execute([work_of(chunk, BACKEND)], context, frozenset())
        if outcome.kind is not ChunkState.DONE:
            raise RuntimeError(f"{chunk.node.name}: {outcome.error}\n{outcome.details}")
        if chunk in wanted:
            record = store.record(chunk.node.stage.name, chunk.key)
            yield Measured(chunk.node.name, least[chunk.key], record["device_bytes"])


def _above(chunk: Chunk) -> Iterator[Chunk]:
    for sources in chunk.inputs:
        for source in sources:
            yield source
            yield from _above(source)
