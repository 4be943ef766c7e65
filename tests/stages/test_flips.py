"""Bits that turn over in resident operators, links, sources and results while chunks are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import Place, Store, Workflow, plan
from pipeline.running.graph import plan_tasks, work_of
from pipeline.worker import checks, resident, task
from pipeline.worker.checks import Checks, arrays_of
from pipeline.worker.events import ChunkState, Event
from pipeline.worker.sources import sources_of
from pipeline.worker.task import execute
from pipeline.worker.work import RunContext
from stages.ensemble.configuration import heatbath_configuration
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.staggered_operator import hisq_operator
from stages.loops import current_loops as loops
from stages.lqcd.kernels.checksum import checksum
from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.noise import Noise
from stages.lqcd.solvers.named import Solve

TARGETS = ("resident", "source", "result")
TOLERANCE = 1e-8
EFFECT = 1e-6
"""Of a solve to `TOLERANCE` on loops of order one."""


@dataclass
class Flips:
    """Turns one bit over, at a moment and in an array that are drawn."""

    rng: np.random.Generator
    target: str = ""
    moment: int = 1
    vectors: list[Any] = field(default_factory=list)
    where: str = ""

    def aim(self, target: str) -> None:
        self.target, self.moment, self.where = target, int(self.rng.integers(1, 12)), ""

    def iteration(self, number: int) -> None:
        """A solver has done so many iterations."""
        if self.where or number < self.moment:
            return
        if self.target == "resident":
            self.flip([each for cache in resident._caches.values() for each in cache._entries.values()])
        elif self.target == "source":
            self.flip(self.vectors)

    def flip(self, value: Any) -> None:
        """In an array of numbers; an index that is wrong would end the process, which is noticed as well."""
        arrays = [
            (path, array) for path, array in arrays_of(value) if array.dtype.kind in "fc" and array.size
        ]
        path, array = arrays[self.rng.integers(len(arrays))]
        content = array.reshape(-1).view(np.uint8)
        byte, bit = int(self.rng.integers(len(content))), int(self.rng.integers(8))
        content[byte] = int(content[byte]) ^ 1 << bit
        self.where = f"{self.target} {path} byte {byte} bit {bit}"


@dataclass
class Chunk:
    """A chunk of loops on one configuration, computed in this process as by a worker."""

    folder: Path
    backend: str

    def __post_init__(self) -> None:
        self.workflow = Workflow("flips")
        chain = {"beta": 6.0, "seed": 3, "sweeps": 3, "overrelaxation": 1}
        place = Place(over={"config": ["a"]})
        extents = (4, 4, 4, 4) if self.backend == "cuda" else (4, 2, 2, 4)
        gauge = self.workflow.add(heatbath_configuration, place=place, extents=extents, **chain)
        options = {"boundary": "antiperiodic", "naik_epsilon": 0.0, "solves": ExpectedSolves(block=4)}
        operator = self.workflow.add(hisq_operator, gauge, **options)
        solve = Solve("block_cgrq", TOLERANCE, "double-single", block=4)
        noise = Noise(7, "z2")
        place = Place(over={"noise": range(2), "probe": [0]}, chunk={"noise": 2})
        self.workflow.add(loops.current_loops, operator, place=place, mass=0.1, noise=noise, solve=solve)
        self.store = Store(self.folder / "store")
        self.store.create()
        gauge_task, self.task = plan_tasks(plan(self.workflow, self.store, backend=self.backend))
        assert self.run(gauge_task).kind == ChunkState.DONE

    def run(self, planned: Any) -> Event:
        (chunk,) = planned.chunks
        work = work_of(chunk, self.backend)
        sources = sources_of([loops.current_loops])
        context = RunContext(self.store, "run", self.backend, 1 << 30, sources, Checks(0.0, checksum))
        (outcome,) = execute([work], context, frozenset())
        return outcome

    def compute(self) -> Event:
        return self.run(self.task)

    def take(self) -> dict[str, np.ndarray]:
        """The result that was committed, which is then removed."""
        (key,) = self.store.keys("current_loops")
        arrays = self.store.load("current_loops", key)
        self.store.remove("current_loops", key)
        return arrays


@pytest.fixture
def flips(monkeypatch: pytest.MonkeyPatch) -> Iterator[Flips]:
    """Places at which a bit may turn over; what workers keep is this test's own."""
    found = Flips(np.random.default_rng(20261123))
    monkeypatch.setattr(resident, "_caches", {})
    monkeypatch.setattr(checks, "_kept", {})
    original_iteration, original_sources = loops.SolveReports.iteration, loops.sources
    original_arrays = task.host_arrays

    def iteration(self: Any, number: int, residuals: Any) -> None:
        original_iteration(self, number, residuals)
        found.iteration(number)

    def sources(*arguments: Any) -> Any:
        found.vectors = original_sources(*arguments)
        return found.vectors

    def host_arrays(*arguments: Any) -> dict[str, np.ndarray]:
        arrays = original_arrays(*arguments)
        if found.target == "result" and "current" in arrays:
            arrays = {name: array.copy() for name, array in arrays.items()}
            found.flip(arrays)
        return arrays

    monkeypatch.setattr(loops.SolveReports, "iteration", iteration)
    monkeypatch.setattr(loops, "sources", sources)
    monkeypatch.setattr(task, "host_arrays", host_arrays)
    yield found


def campaign(flips: Flips, chunk: Chunk, number: int) -> dict[str, int]:
    """So many flips, one in each computation of a chunk; how many of them were noticed, and in what."""
    assert chunk.compute().kind == ChunkState.DONE
    right, noticed = chunk.take(), dict.fromkeys(TARGETS, 0)
    for turn in range(number):
        target = TARGETS[turn % len(TARGETS)]
        flips.aim(target)
        outcome = chunk.compute()
        assert flips.where, "no bit was turned over"
        if outcome.distrusted:
            assert not chunk.store.keys("current_loops") and "changed" in outcome.error, flips.where
            noticed[target] += 1
        else:  # nothing to notice, then
            assert outcome.kind == ChunkState.DONE, (flips.where, outcome)
            for name, array in chunk.take().items():
                assert np.abs(array - right[name]).max() <= EFFECT, flips.where
        flips.target = ""
    assert chunk.compute().kind == ChunkState.DONE
    assert all(np.array_equal(array, right[name]) for name, array in chunk.take().items())
    return noticed


@pytest.mark.usefixtures("reference_kernels")
def test_flipped_bits_are_noticed_before_the_commit(flips: Flips, tmp_path: Path) -> None:
    assert campaign(flips, Chunk(tmp_path, "cpu"), 3) == {"resident": 1, "source": 1, "result": 1}


@pytest.mark.slow
def test_fifty_flipped_bits_on_the_compiled_kernels(flips: Flips, tmp_path: Path) -> None:
    with kernels_of("cpu"):
        assert sum(campaign(flips, Chunk(tmp_path, "cpu"), 51).values()) == 51


@pytest.mark.gpu
def test_fifty_flipped_bits_in_device_memory(flips: Flips, tmp_path: Path) -> None:
    """Some strike work space or links that are not used: `campaign` asserts that these have no effect."""
    noticed = campaign(flips, Chunk(tmp_path, "cuda"), 51)
    assert noticed["source"] == noticed["result"] == 17
    assert noticed["resident"] >= 12
