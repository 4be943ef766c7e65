"""Forecasts: what the model learns from records, how a run is simulated, what the report says after."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import toy_stages as toys

from pipeline import Cost, Outcome, Pass, Place, Store, Workflow, plan
from pipeline.reading.account import accounts
from pipeline.reading.forecast.forecast import Setting, added, forecast
from pipeline.reading.forecast.kept import keep, reconciled
from pipeline.reading.forecast.model import COUNT_UNKNOWN, Estimate, Model, line, threads
from pipeline.reading.forecast.page import sections, totals
from pipeline.reading.forecast.samples import ChunkSample, Machine, Part, samples
from pipeline.reading.forecast.schedule import schedule
from pipeline.reading.report import Table
from pipeline.running.graph import plan_tasks

HERE, THERE = Machine("cpu", "Some processor, 2 threads"), Machine("cpu", "Other processor, 1 threads")
CALL, RATE = 2e-4, 3e-9
"""Of the machine that samples were made up for."""


def solves(nbytes: float, mass: float = 0.05, expected: float = 100.0) -> Pass:
    return Pass("iterations", expected, nbytes, "iterations", ("cg", "single", "double", mass))


def sample(
    nbytes: float, *, real: float = 130.0, slow: float = 1.0, machine: Machine = HERE, mass: float = 0.05
) -> ChunkSample:
    """A chunk whose solves took `real` iterations where 100 were expected."""
    seconds = slow * real * (CALL + RATE * nbytes)
    part = Part("solve", machine, seconds, (solves(nbytes, mass),), (real,), False)
    expected = {"memory": 10**6, "device_memory": 0, "stored": 1000}
    rest = ("", (part,), 0.0, 50 * seconds, 10**8, None, 1400, 1, expected)
    return ChunkSample("solve", "solve", machine, "p", seconds, *rest)


def told(model: Model, nbytes: float, mass: float = 0.05) -> Estimate:
    return model.seconds("solve", HERE, (solves(nbytes, mass),), False)


def test_one_size_tells_its_own_and_larger_ones_within_the_stated_range() -> None:
    model = Model([sample(1e6, slow=1 + 0.02 * k) for k in range(-2, 3)])
    assert told(model, 1e6).value == pytest.approx(130 * (CALL + RATE * 1e6), rel=0.03)
    larger, truth = told(model, 8e6), 130 * (CALL + RATE * 8e6)
    assert abs(math.log(larger.value / truth)) < 2 * larger.sigma < 0.6
    assert told(model, 1e6).sigma < larger.sigma


def test_two_sizes_tell_calls_from_bytes_and_one_disturbed_sample_does_not_matter() -> None:
    model = Model([*(sample(nbytes) for nbytes in (1e4, 1e4, 1e6, 1e6)), sample(1e6, slow=30)])
    for nbytes in (1e5, 1e7):
        assert told(model, nbytes).value == pytest.approx(130 * (CALL + RATE * nbytes), rel=0.1)


def test_iterations_are_those_of_equal_settings_else_of_their_kind_else_as_expected() -> None:
    model = Model([sample(1e6), sample(1e6, real=200.0, mass=0.01)])
    assert model.count(solves(1e6, 0.05, 300.0)).value == pytest.approx(390.0)
    assert model.count(solves(1e6, 0.01)).value == pytest.approx(200.0)
    related = model.count(solves(1e6, 0.02))
    assert 130 < related.value < 200
    unknown = Model([]).count(solves(1e6))
    assert (unknown.value, unknown.sigma) == (100.0, COUNT_UNKNOWN)
    assert model.count(solves(1e6)).sigma < related.sigma < unknown.sigma


def test_machine_without_records_is_as_others_are_and_less_certain() -> None:
    model = Model([sample(1e6)])
    there = model.seconds("solve", THERE, (solves(1e6),), False)
    assert there.value == pytest.approx(2 * told(model, 1e6).value)  # half the threads
    assert there.sigma > 2 * told(model, 1e6).sigma
    assert (threads(HERE), threads(Machine("cuda", "NVIDIA H200"))) == (2, 1)
    assert model.watts(THERE) is None
    assert model.watts(HERE) == Estimate(50.0, 0.15)


def test_sizes_grow_with_what_was_declared() -> None:
    assert line([(100.0, 140.0)], 900.0, 0.0).value == pytest.approx(940.0)
    assert line([(100.0, 250.0), (500.0, 450.0)], 900.0, 0.0).value == pytest.approx(650.0)
    assert line([], 70.0, 1.0).value == 70.0
    assert added([Estimate(3.0, 0.1), Estimate(4.0, 0.1)]).sigma == pytest.approx(0.5 / 7)


def campaign(configurations: int) -> Workflow:
    """A field of each configuration, and something made of it."""
    workflow = Workflow("toys")
    labels = [f"c{number}" for number in range(configurations)]
    field = workflow.add(toys.field, place=Place(over={"config": labels}))
    workflow.add(toys.fragile, field)
    return workflow


def test_simulated_run_keeps_workers_busy_and_waits_for_inputs(store: Store) -> None:
    tasks = plan_tasks(plan(campaign(4), store))
    seconds = {"field": 1.0, "fragile": 2.0}

    def per_node(name: str, first: bool) -> float:
        return seconds[name] + (0.5 if first else 0.0)

    alone, two, many = (schedule(tasks, n, per_node, lambda *_: 0.0) for n in (1, 2, 50))
    assert alone.wall == alone.work == 4 * 3.0 + 2 * 0.5
    assert two.wall == pytest.approx(7.0)
    assert two.work == 4 * 3.0 + 4 * 0.5
    assert many.wall == pytest.approx(4.0)  # field, then shifted, each for the first time


def test_forecast_learns_from_a_store_and_the_report_reconciles_it(
    store: Store, compute: Callable[[Workflow], Outcome]
) -> None:
    compute(campaign(2))
    model = Model(samples([store]))
    assert {each.stage for each in model.samples} == {"field", "fragile"}
    assert all(each.host_bytes and each.files == 1 and each.expected for each in model.samples)
    larger = plan(campaign(6), store)
    (machine,) = model.machines()
    result = forecast(larger, model, Setting(2, {"cpu": machine}, 2), (3.0, 1.0))
    assert {node.node: node.chunks for node in result.nodes} == {"field": 4, "fragile": 4}
    assert result.files == 8
    assert result.stored.value == pytest.approx(2 * sum(each.stored for each in model.samples), rel=0.02)
    assert result.wall.value > 4.0
    assert result.node_hours.value == pytest.approx(result.wall.value / 3600)
    keep(result, store)
    compute(campaign(6))
    (section,) = reconciled(store, "toys", accounts(store, "toys"))
    (table,) = (part for part in section.parts if isinstance(part, Table))
    stored = {row[0]: row[-1] for row in table.rows if row[2] == "bytes stored"}
    assert stored == {"field": pytest.approx(1.0, abs=0.05), "fragile": pytest.approx(1.0, abs=0.05)}
    assert all(row[1] == 4 for row in table.rows)


def test_page_says_what_nobody_measured_and_where_nothing_is_known(store: Store) -> None:
    result = forecast(plan(campaign(2), store), Model([]), Setting(1, {"cpu": HERE}, 1))
    shown = dict(totals(result))
    assert shown["energy"].startswith("unknown")
    assert shown["files written"] == "4"
    assert "No record of earlier chunks" in sections(result, [result], [])[0].text


def test_cost_with_work_travels_to_records(store: Store, compute: Callable[[Workflow], Outcome]) -> None:
    workflow = Workflow("working")
    working = toys.Costing(toys.field, stored=900, work=(Pass("sweeps", 7, 64.0),))
    workflow.add(working, place=Place(over={"config": ["a"]}))
    assert workflow.nodes["field"].cost == Cost(stored=900, work=(Pass("sweeps", 7, 64.0),))
    compute(workflow)
    (found,) = samples([store])
    assert found.parts[0].expected == (Pass("sweeps", 7, 64.0),)
    assert found.parts[0].counts == (7,)
    assert found.expected["stored"] == 900
