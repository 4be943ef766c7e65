"""Runs of toy workflows, with executions counted: nothing is computed twice, everything that must be is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import toy_stages as toys
from executions import Executions

from pipeline import At, InputError, Outcome, Place, Store, Workflow, open_result, plan, run, verify
from pipeline.reading.verification import Damage
from pipeline.running.clusters.address import Address
from pipeline.running.clusters.choose import choose
from pipeline.running.clusters.local import Local
from pipeline.running.event_log import read_events
from pipeline.running.memory_advice import shortage

Compute = Callable[[Workflow], Outcome]


def ensemble(
    configs: Iterable[str] = "ab", noise: int = 4, mass: float = 0.5, scale: float = 1.0
) -> Workflow:
    w = Workflow("ensemble")
    field = w.add(toys.field, place=Place(over={"config": list(configs)}), scale=scale)
    loops = w.add(toys.loops, field, place=Place(over={"noise": range(noise)}, chunk={"noise": 2}), mass=mass)
    w.add(toys.config_mean, loops)
    w.add(toys.mean, loops)
    return w


def test_what_a_run_computes(compute: Compute, executed: Executions) -> None:
    """Every chunk once; a second one nothing, others what is new, changed, or made of what has changed."""
    outcome = compute(ensemble())
    assert (outcome.exit_status, outcome.count("done")) == (0, 9)
    assert executed.new() == {"config_mean": 2, "field": 2, "loops": 4, "mean": 1}
    again = compute(ensemble())
    assert again.exit_status == 0 and "nothing to compute" in again.table() and executed.new() == {}
    downstream = {"config_mean": 2, "loops": 4, "mean": 1}
    for workflow, computed in (
        (ensemble("abcd", 8), {"config_mean": 4, "field": 2, "loops": 12, "mean": 1}),
        (ensemble("a"), {"mean": 1}),
        (ensemble(mass=0.25), downstream),
        (ensemble(mass=0.5), {}),
        (ensemble(scale=2.0), {**downstream, "field": 2}),
    ):
        assert compute(workflow).exit_status == 0
        assert executed.new() == computed


def test_results_are_those_of_the_bare_functions(compute: Compute, store: Store) -> None:
    compute(ensemble())
    at = At(config="b", noise=(2, 3))
    expected = toys.loops(toys.field(at=At(config="b")), at=at, mass=0.5)
    loops = open_result(store, "loops").sel(config="b", noise=[2, 3])
    np.testing.assert_array_equal(loops.current, expected.current)
    np.testing.assert_array_equal(loops.total, expected.total)
    everything = open_result(store, "loops").current.mean(["config", "noise"])
    np.testing.assert_allclose(open_result(store, "mean")["mean"], everything, rtol=1e-14)


def test_transient_results_are_computed_once_for_consumers_that_share_them(compute, executed, store):
    """Their progress is that of the first of these."""
    w, field = toys.fields("ab", "fused")
    bulk = w.add(toys.bulk, field, place=Place(over={"noise": range(2)}), shift=0.25)
    w.add(toys.first, bulk)
    w.add(toys.second, bulk)
    outcome = compute(w)
    assert executed.new() == {"bulk": 4, "field": 2, "first": 4, "second": 4}
    assert store.stages() == ["field", "first", "second"]
    record = store.record("first", next(iter(store.keys("first"))))
    assert record["transient"][0]["statistics"] == {"shifted": 0.25}
    told = [event for event in read_events(store, outcome.run) if event.kind == "progress"]
    assert [(event.node, event.done) for event in told] == [("first", 1)] * 4
    compute(w)
    assert executed.new() == {}


def test_a_resident_result_is_made_once_per_worker(compute: Compute, executed: Executions) -> None:
    w, field = toys.fields("a", "resident")
    setup = w.add(toys.setup, field)
    w.add(toys.with_setup, setup, place=Place(over={"noise": range(12)}))
    compute(w)
    counts = executed.new()
    assert counts["with_setup"] == 12
    assert 1 <= counts["setup"] <= 2


def test_an_input_may_be_given_on_a_subset_of_coordinates_and_in_chunks_with_other_borders(
    compute: Compute, executed: Executions, store: Store
) -> None:
    w, field = toys.fields("a", "truncated")
    place = Place(name="sloppy", over={"noise": range(8)}, chunk={"noise": 4})
    sloppy = w.add(toys.loops, field, place=place, mass=0.5)
    w.add(toys.correction, sloppy, place=Place(over={"noise": [3, 4]}, chunk={"noise": 1}))
    w.add(toys.correction, sloppy, place=Place("thirds", over={"noise": range(6)}, chunk={"noise": 3}))
    compute(w)
    assert executed.new() == {"correction": 4, "field": 1, "loops": 2}
    sloppy_data = open_result(store, "sloppy")
    for name, noise in (("correction", [3, 4]), ("thirds", range(6))):
        corrected = open_result(store, name, workflow="truncated")
        assert list(corrected.noise) == list(noise)
        np.testing.assert_array_equal(corrected.current, 0.5 * sloppy_data.current.sel(noise=list(noise)))


def test_a_failed_chunk_stops_only_what_needs_it_and_is_tried_again_by_the_next_run(compute, executed):
    w, field = toys.fields("abc", "failing")
    fragile = w.add(toys.fragile, field, bad=("b",))
    w.add(toys.loops, fragile, place=Place(over={"noise": [0, 1]}), mass=1.0)
    outcome = compute(w)
    assert outcome.exit_status == 1
    assert outcome.states["fragile"] == {"done": 2, "failed": 1}
    assert outcome.states["loops"] == {"done": 4, "blocked": 2}
    assert "failed: fragile config=b: ValueError: configuration b is bad" in outcome.table()
    assert executed.new() == {"field": 3, "fragile": 3, "loops": 4}
    assert compute(w).exit_status == 1
    assert executed.new() == {"fragile": 1}


def test_a_task_beyond_the_machines_memory_is_refused_before_any_work(store, monkeypatch):
    monkeypatch.setattr("pipeline.running.clusters.local.MEMORY_LIMIT", 8_000_000_000)
    w = Workflow("large")
    small = w.add(toys.Costing(toys.field, memory=8_000_000_000), place=Place(over={"config": ["a"]}))
    assert shortage(plan(w, store), Local()) is None
    w.add(toys.Costing(toys.fragile, memory=94_000_000_000), small)
    message = r"node 'fragile' needs 87.54 GiB of memory \(projected\), but this machine has 7.45 GiB: make"
    with pytest.raises(InputError, match=message):
        run(plan(w, store), store, cluster="local")
    assert not store.path.exists()
    assert shortage(plan(w, store), choose("tcp://elsewhere:8786")) is None


def test_a_raised_limit_computes_what_failed_and_nothing_else(compute, executed, store):
    def campaign(configs: str, patience: int, scale: float = 1.0) -> Workflow:
        w = Workflow("limited")
        w.add(toys.limited, place=Place(over={"config": list(configs)}), scale=scale, patience=patience)
        return w

    compute(campaign("ab", 20))
    assert compute(campaign("abc", 5)).states["limited"] == {"failed": 1}
    executed.new()
    assert compute(campaign("abc", 30)).states["limited"] == {"done": 1}
    assert executed.new() == {"limited": 1}
    assert len(plan(campaign("abc", 30, scale=2.0), store).missing) == 3
    limits = {store.record("limited", key)["parameters"]["patience"] for key in store.keys("limited")}
    assert limits == {20, 30}


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_fault_of_the_infrastructure_is_retried(compute, store, executed, monkeypatch, wrapped):
    monkeypatch.setattr("pipeline.running.retrying.PAUSES", (0.2,))
    w = Workflow("flaky")
    w.add(toys.flaky, place=Place(over={"config": ["a"]}), wrapped=wrapped)
    outcome = compute(w)
    assert outcome.exit_status == 0, outcome
    assert executed.new() == {"flaky": 3}
    said = [event.message for event in read_events(store, outcome.run)]
    assert any("tried again in 0.2 s (1 of 1)" in message for message in said), said


def test_an_error_that_does_not_pass_fails_its_chunk_and_what_needs_it(compute, store, executed, monkeypatch):
    monkeypatch.setattr("pipeline.running.retrying.PAUSES", (0.2,))
    w = Workflow("away")
    away = w.add(toys.away, place=Place(over={"config": ["a", "b"]}), bad=("a",))
    w.add(toys.fragile, away)
    outcome = compute(w)
    assert outcome.states == {"away": {"done": 1, "failed": 1}, "fragile": {"done": 1, "blocked": 1}}
    assert [failure.error for failure in outcome.failures] == [
        "TimeoutError: [Errno 110] the file server is away"
    ]
    assert executed.new() == {"away": 5, "fragile": 1}


@pytest.mark.slow
def test_a_chunk_that_kills_its_workers_is_reported_and_the_others_end(store, log_path, executed):
    w, field = toys.fields("abcdef", "deadly")
    deadly = w.add(toys.deadly, field, bad=("b",))
    w.add(toys.loops, deadly, place=Place(over={"noise": [0]}), mass=1.0)
    outcome = run(plan(w, store), store, cluster=Local(workers=2))
    assert outcome.states["deadly"] == {"done": 5, "failed": 1}
    assert outcome.states["loops"] == {"done": 5, "blocked": 1}
    assert "worker died every time" in outcome.failures[0].error


def test_what_no_worker_can_do_is_refused(compute: Compute, store: Store, cluster: Address) -> None:
    w = Workflow("greedy")
    w.add(toys.greedy, place=Place(over={"config": ["a"]}))
    with pytest.raises(InputError, match=r"Resources\(device=2\), but no worker .* more than device=1"):
        compute(w)

    w = Workflow("chain")
    w.add(toys.chain, place=Place(over={"config": ["a"]}))
    with pytest.raises(InputError, match="plan is for backend 'cuda', the cluster's is 'cpu'"):
        run(plan(w, store, backend="cuda"), store, cluster=cluster)


def reading(path: Path, function: object = toys.field) -> Workflow:
    """A stage that reads a file, which holds 1.5 before it is written into."""
    if not path.exists():
        path.write_text("1.5")
    w = Workflow("reading")
    w.add(function, place=Place(over={"config": ["a"]}, files={"path": {"a": path}}))
    return w


def test_a_changed_file_is_a_new_chunk_and_a_renamed_one_is_not(compute, executed, tmp_path):
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    compute(reading(old))
    old.rename(new)
    compute(reading(new))
    assert executed.new() == {"field": 1}
    new.write_text("2.5")
    compute(reading(new))
    assert executed.new() == {"field": 1}


def test_a_file_changed_after_planning_or_while_its_stage_runs_fails_its_chunk(
    store: Store, cluster: Address, executed: Executions, tmp_path: Path
) -> None:
    for function, ran in ((toys.field, {}), (toys.overtaken, {"overtaken": 1})):
        path = tmp_path / f"{function.stage.name}.txt"
        planned = plan(reading(path, function), store)
        if not ran:
            path.write_text("25.5")
        outcome = run(planned, store, cluster=cluster)
        assert "was changed after the run was planned" in outcome.failures[0].error
        assert executed.new() == ran and not store.keys(function.stage.name)


def test_a_corrupted_chunk_is_found_removed_and_computed_again(compute, executed, store):
    compute(ensemble())
    key = sorted(store.keys("field"))[0]
    damage(store, "field", key)
    found = verify(store)
    assert found.checked == 9
    assert [(damage.stage, damage.key) for damage in found.damaged] == [("field", key)]
    assert isinstance(found.damaged[0], Damage)
    assert plan(ensemble(), store).missing == ()
    verify(store, remove=True)
    executed.new()
    compute(ensemble())
    assert executed.new() == {"field": 1}
    assert not verify(store).damaged


def damage(store: Store, stage: str, key: str) -> None:
    """Flip a bit of a chunk's first array."""
    place = store.location(stage, key)
    content = bytearray(place.read_bytes())
    content[content.index(b"/c.0") + 9] ^= 1
    place.write_bytes(content)


def test_a_damaged_input_is_moved_aside_and_computed_again_in_the_same_run(compute, executed, store):
    compute(ensemble())
    key = sorted(store.keys("field"))[0]
    damage(store, "field", key)
    executed.new()
    outcome = compute(ensemble(mass=0.25))
    assert outcome.exit_status == 0
    assert executed.new()["field"] == 1
    assert not verify(store).damaged
    (grave,) = (store.path / ".damaged" / "field").iterdir()
    assert grave.name.startswith(key)
    told = [event.message for event in read_events(store, outcome.run) if event.kind == "damaged"]
    assert len(told) == 1 and "computed again" in told[0]


def test_a_purge_that_leaves_folders_or_empty_files_is_seen_by_the_plan(compute, executed, store):
    compute(ensemble())
    gone, emptied = sorted(store.keys("field"))[:2]
    store.location("field", gone).unlink()
    store.location("field", emptied).write_bytes(b"")
    wanted = plan(ensemble(), store)
    assert {chunk.key for chunk in wanted.missing} == {gone, emptied}
    assert str(wanted.reasons[emptied]) == "damaged: files are gone"
    executed.new()
    assert compute(ensemble()).exit_status == 0
    assert executed.new() == {"field": 2}
    assert not verify(store).damaged


def test_events_and_records_tell_the_story_of_a_run(store: Store, cluster: Address) -> None:
    """Who listens hears every event."""
    heard: list[dict] = []
    outcome = run(plan(ensemble("a", 2), store), store, cluster=cluster, listener=heard.append)
    events = list(read_events(store, outcome.run))
    kinds = [event.kind for event in events]
    assert kinds == [event["event"] for event in heard]
    assert (kinds[0], kinds[-1]) == ("run-started", "run-ended")
    assert kinds.count("started") == kinds.count("done") == 4
    progress = next(event for event in events if event.kind == "progress")
    assert progress.node == "loops" and progress.more == {"residual": 1e-9}
    assert progress.coordinates == {"config": ("a",), "noise": (0, 1)}
    (key,) = store.keys("loops")
    record = store.record("loops", key)
    assert record["parameters"] == {"mass": 0.5}
    assert record["coordinates"] == {"config": ["a"], "noise": [0, 1]}
    assert record["inputs"] == [[next(iter(store.keys("field")))]]
    assert record["statistics"] == {"iterations": [0, 1], "nothing": "nan"}
    assert (record["version"], record["backend"]) == ("1", "cpu") and record["seconds"] > 0
    assert {"host", "device", "run", "finished", "code"} <= set(record)
