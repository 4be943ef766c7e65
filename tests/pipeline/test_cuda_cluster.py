"""The cuda cluster on real GPUs."""

from __future__ import annotations

import numpy as np
import pytest
import toy_stages as toys

from pipeline import Outcome, Place, Store, Workflow, open_result, plan, run
from pipeline.running.clusters.cuda import Cuda

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def needs_a_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    pytest.importorskip("dask_cuda")
    if not cupy.is_available():
        pytest.skip("no GPU here")


def workflow() -> Workflow:
    import toy_gpu_stages as gpu

    w, field = toys.fields("ab", "gpu")
    w.add(gpu.scaled, w.add(gpu.on_device, field), place=Place(over={"noise": range(6)}))
    w.add(toys.chain, place=Place(over={"config": ["a"]}))
    return w


def run_on_gpu(w: Workflow, store: Store) -> Outcome:
    return run(plan(w, store, backend="cuda"), store, cluster=Cuda())


def test_a_run_on_gpus_gives_the_results_of_the_cpu(store, compute, tmp_path_factory):
    compute(workflow())
    other = Store(tmp_path_factory.mktemp("gpu") / "store")
    outcome = run_on_gpu(workflow(), other)
    assert outcome.exit_status == 0, outcome.table()
    np.testing.assert_allclose(
        open_result(other, "scaled").current, open_result(store, "scaled").current, rtol=1e-14
    )
    record = other.record("scaled", next(iter(other.keys("scaled"))))
    assert record["backend"] == "cuda"
    assert record["statistics"]["module"].startswith("cupy")
    assert "NVIDIA" in record["device"]
    assert record["joules"] >= 0
    assert other.record("field", next(iter(other.keys("field"))))["backend"] == "cpu"
    assert store.keys("scaled") == other.keys("scaled")
    assert store.keys("chain") != other.keys("chain")
    assert not plan(workflow(), other, backend="cuda").missing


def test_a_kernel_that_destroys_the_context_fails_its_chunk_alone(store: Store) -> None:
    import toy_gpu_stages as gpu

    w = Workflow("crash")
    w.add(gpu.crashing, place=Place(over={"config": list("abcdefgh")}), bad=("c",))
    outcome = run_on_gpu(w, store)
    assert outcome.states["crashing"] == {"done": 7, "failed": 1}
    assert "illegal memory access" in outcome.failures[0].error or "llegal" in outcome.failures[0].error
