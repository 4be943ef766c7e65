"""A lattice that one GPU has no room for: one is refused, two compute what one with room does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_project import TINY, edit

from pipeline import Plan, Store, plan, run
from pipeline.running.clusters.cuda import Cuda
from pipeline.running.memory_advice import CONTEXT, Footprint, costs_of
from workflows.catalogue import load_project

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.usefixtures("two_gpus")]

BLOCK = 32
TOLERANCE = 1e-9
"""Of results, relative to the largest number; solves end at 1e-10."""


def planned(file: Path, name: str) -> tuple[Plan, Store]:
    """The plan of a file with a store of this name."""
    store = Store(file.parent / name)
    return plan(load_project(file).workflow, store, backend="cuda"), store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Loops of one configuration on 24^3 x 32, in blocks of 32 right-hand sides."""
    file = tmp_path / "g2.yaml"
    file.write_text(TINY)
    return edit(
        file,
        ("[4, 4, 4, 4]", "[24, 24, 24, 32]"),
        (
            "configurations: 2, sweeps: 3, overrelaxation: 1",
            "configurations: 1, sweeps: 1, overrelaxation: 0",
        ),
        ("chunk: 2", "chunk: 4"),
        ("  sloppy: {tolerance: 1.0e-3}\n", f"  block: {BLOCK}\n  sloppy: {{tolerance: 1.0e-10}}\n"),
        ("  fine: {tolerance: 1.0e-10, vectors: 2}\n", ""),
    )


def test_two_gpus_compute_what_one_has_no_room_for(file, quarkline, monkeypatch):
    """The pool of each GPU is capped half-way between what one needs and what each of two does."""
    work, shared = planned(file, "shared")
    one, each = (Footprint.of(work.missing).least(costs_of(work, gpus)) for gpus in (1, 2))
    room = (one + each) // 2
    card = f"cluster.gpu_memory={CONTEXT + room}B"
    said = quarkline("run", file, "--cluster", "cuda", "--set", card)
    assert said.code == 2 and "Traceback" not in said.err, said
    assert "or use 2 GPUs per worker (--gpus-per-worker 2)" in said.err

    with monkeypatch.context() as capped:
        capped.setenv("CUPY_GPU_MEMORY_LIMIT", str(room))
        cluster = Cuda(workers=1, gpus_per_worker=2, gpu_memory=CONTEXT + room)
        outcome = run(work, shared, cluster=cluster)
    assert outcome.exit_status == 0, outcome.table()
    whole, alone = planned(file, "alone")
    outcome = run(whole, alone, cluster=Cuda(workers=1))
    assert outcome.exit_status == 0, outcome.table()

    assert most_bytes(shared) <= room < most_bytes(alone)
    for stage in alone.stages():
        for key in alone.keys(stage):
            expected, arrays = alone.load(stage, key), shared.load(stage, key)
            for name, values in expected.items():
                if stage == "heatbath_configuration":
                    np.testing.assert_array_equal(arrays[name], values)
                else:
                    largest = np.nanmax(np.abs(values), initial=0.0)
                    np.testing.assert_allclose(
                        arrays[name], values, rtol=0, atol=TOLERANCE * largest, err_msg=f"{stage}, {name}"
                    )


def most_bytes(store: Store) -> int:
    """Most bytes of results and fields that a task had on a GPU."""
    records = [store.record("current_loops", key) for key in store.keys("current_loops")]
    return max(record["device_bytes"] for record in records)
