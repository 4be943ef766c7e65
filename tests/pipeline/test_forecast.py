"""Forecasts: what the model learns from records, how a run is simulated, what the report says after."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toy_stages as toys

from pipeline import Cost, Outcome, Pass, Place, Store, Workflow, plan
from pipeline.reading.account import accounts
from pipeline.reading.forecast.estimate import Estimate, added
from pipeline.reading.forecast.forecast import Setting, forecast
from pipeline.reading.forecast.kept import keep, reconciled
from pipeline.reading.forecast.memory import Memory, line, slope
from pipeline.reading.forecast.model import COUNT_UNKNOWN, Model
from pipeline.reading.forecast.page import learned_from, sections, totals
from pipeline.reading.forecast.power import joules
from pipeline.reading.forecast.samples import ChunkSample, Machine, Part, samples
from pipeline.reading.forecast.schedule import schedule
from pipeline.reading.report import Table
from pipeline.running.graph import plan_tasks
from pipeline.worker.stopwatch import Stopwatch
from pipeline.worker.work import NodeWork
from stages.base.compilation import COMPILED, FOR_LATTICE, READ, Kernels, getting, got, taken, telling

HERE, THERE = Machine("cpu", "Some processor", 2), Machine("cpu", "Other processor", 1)
CALL, RATE = 2e-4, 3e-9
"""Of the machine that samples were made up for."""


def solves(nbytes: float, mass: float = 0.05, expected: float = 100.0) -> Pass:
    return Pass("iterations", expected, nbytes, "iterations", ("cg", "single", "double", mass))


def chunk(
    parts: tuple[Part, ...], seconds: float, machine: Machine = HERE, process: str = "p", **others: Any
) -> ChunkSample:
    """A chunk that was computed, with numbers that no test looks at unless it gives them."""
    expected = {"memory": 10**6, "device_memory": 0, "resident": 0, "stored": 1000}
    fields: dict[str, Any] = dict.fromkeys(("opening", "joules", "device_bytes"))
    fields |= {
        "finished": "",
        "handling": 0.0,
        "kernels": {},
        "host_bytes": 10**8,
        "stored": 1400,
        "files": 1,
    }
    fields |= {"resident": 0, "resident_limit": 10**9, "expected": expected, "stage": "solve"} | others
    return ChunkSample(machine=machine, process=process, seconds=seconds, parts=parts, **fields)


def sample(
    nbytes: float, *, real: float = 130.0, slow: float = 1.0, machine: Machine = HERE, mass: float = 0.05
) -> ChunkSample:
    """A chunk whose solves took `real` iterations where 100 were expected."""
    seconds = slow * real * (CALL + RATE * nbytes)
    part = Part("solve", seconds, (solves(nbytes, mass),), (real,), False, {})
    return chunk((part,), seconds, machine)


def told(model: Model, nbytes: float, mass: float = 0.05) -> Estimate:
    return model.seconds("solve", HERE, (solves(nbytes, mass),), False)


def test_the_model_tells_sizes_and_iterations() -> None:
    """One size tells its own, two tell calls from bytes, and one disturbed sample does not matter."""
    model = Model([sample(1e6, slow=1 + 0.02 * k) for k in range(-2, 3)])
    assert told(model, 1e6).value == pytest.approx(130 * (CALL + RATE * 1e6), rel=0.03)
    larger, truth = told(model, 8e6), 130 * (CALL + RATE * 8e6)
    assert abs(math.log(larger.value / truth)) < 2 * larger.sigma < 0.6
    assert told(model, 1e6).sigma < larger.sigma

    model = Model([*(sample(nbytes) for nbytes in (1e4, 1e4, 1e6, 1e6)), sample(1e6, slow=30)])
    for nbytes in (1e5, 1e7):
        assert told(model, nbytes).value == pytest.approx(130 * (CALL + RATE * nbytes), rel=0.1)

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
    assert Machine.named("cpu", "Some processor, 2 threads") == HERE
    assert str(THERE) == "Other processor, 1 threads"
    assert not model.knows("solve", THERE) and THERE not in model.watts
    assert model.kernels_of("solve", THERE, ()) == Kernels()


def test_a_worker_of_two_threads_learns_from_workers_of_one() -> None:
    one, passes = HERE._replace(number=1), (solves(1e6),)
    others = [sample(1e6, machine=THERE, slow=7.0) for _ in range(5)]
    model = Model([*others, sample(1e6, machine=one, slow=2.0)])
    told = model.seconds("solve", HERE, passes, False)
    assert model.knows("solve", HERE) and not model.knows("else", HERE)
    assert told.value == pytest.approx(model.seconds("solve", one, passes, False).value / 2)
    assert told.sigma < Model(others).seconds("solve", HERE, passes, False).sigma
    first = Part("solve", 1.0, passes, (130.0,), True, OLD)
    kernels = Model([chunk((first,), 30.0, one)])
    assert kernels.kernels_of("solve", HERE, passes) == kernels.kernels_of("solve", one, passes)
    assert kernels.kernels_of("solve", one, passes) != Kernels()


BASE, LIBRARIES = 0.004, 0.6
WAITING, STARTING, MOVING = 110.0, 230.0, 700.0
GPU = Machine("cuda", "Some GPU")
GPU_CALL, GPU_RATE = 1.8e-4, 6e-13
OLD = {COMPILED: Kernels(20, 10.0, 40_000_000), COMPILED + FOR_LATTICE: Kernels(4, 3.0, 10_000_000)}
"""What the first process of a machine gets; its second one reads the first 20."""


def on_gpu(nbytes: float, process: str, kernels: dict[str, Kernels], iterations: float = 1000.0) -> list[Any]:
    """Two chunks of a process: the first one gets its kernels and loads libraries."""
    starting, moving = iterations * GPU_CALL, iterations * GPU_RATE * nbytes
    chunks = []
    for first in (True, False):
        work = BASE + starting + moving + first * LIBRARIES
        part = Part("solve", work, (Pass("iterations", iterations, nbytes),), (iterations,), first,
                    kernels if first else {})  # fmt: skip
        seconds = work + sum(each.seconds for each in part.kernels.values())
        drawn = MOVING * moving + STARTING * starting + WAITING * (seconds - moving - starting)
        chunks.append(chunk((part,), seconds, GPU, process, joules=drawn))
    return chunks


@pytest.mark.parametrize("sizes", [(2.3e8,), (1e8, 9e8)])
def test_compiling_is_told_apart_from_work_and_from_loading(sizes: tuple[float, ...]) -> None:
    samples = [each for n, size in enumerate(sizes) for each in on_gpu(size, f"p{n}", OLD if not n else {})]
    model, size = Model(samples), 1.5e9
    work = (Pass("iterations", 2000.0, size),)
    truth = BASE + 2000 * (GPU_CALL + GPU_RATE * size)
    first, later = (model.seconds("solve", GPU, work, each).value for each in (True, False))
    assert later == pytest.approx(truth, rel=0.1 if len(sizes) > 1 else 0.25)
    assert first - later == pytest.approx(LIBRARIES, rel=0.25)
    known, other = (
        model.kernels_of("solve", GPU, (Pass("iterations", 1.0, each),)) for each in (sizes[0], size)
    )
    assert known.seconds < 0.5  # all are read
    if len(sizes) == 1:
        assert other.seconds == pytest.approx(3.0, abs=0.5)  # those for the lattice are compiled anew
        assert other.number == known.number == 24


@pytest.mark.parametrize("sizes", [(2.3e8,), (1e8, 9e8)])
def test_energy_of_work_and_of_waiting(sizes: tuple[float, ...]) -> None:
    samples = [each for n, size in enumerate(sizes) for each in on_gpu(size, f"p{n}", OLD if not n else {})]
    model, size = Model(samples), 1.5e9
    work = (Pass("iterations", 2000.0, size),)
    power = model.watts[GPU]
    moving, starting = 2000 * GPU_RATE * size, 2000 * GPU_CALL
    truth = MOVING * moving + STARTING * starting + WAITING * 5.0
    seconds, worked = model.seconds("solve", GPU, work, False), model.worked("solve", GPU, work)
    assert power[2] == pytest.approx(WAITING, rel=0.1)
    assert joules(power, worked, added([seconds, Estimate(5.0)])).value == pytest.approx(truth, rel=0.25)
    assert joules(power, np.zeros(2), Estimate(10.0)).value == pytest.approx(10 * power[2])


def test_reading_and_sums_grow_with_the_bytes_of_a_chunk_and_the_rest_does_not() -> None:
    expected = {"memory": 10**6, "device_memory": 10**8, "resident": 0, "stored": 1000}
    parts = (Part("solve", 1.0, (), (), False, {}),)
    model = Model([chunk(parts, 1.5, handling=0.3, expected=expected)])
    assert model.beside("solve", Cost(device_memory=4 * 10**8)) == pytest.approx(0.2 + 1.2)


def test_memory_is_what_stays_beside_what_a_chunk_needs() -> None:
    def at(resident: int, pool: int, finished: str) -> ChunkSample:
        expected = {"memory": 4 * 10**8, "device_memory": 600, "resident": 400, "stored": 1}
        kernels = {COMPILED: Kernels(1, 1.0, 60_000_000)} if finished == "1" else {}
        return chunk((), 1.0, GPU, finished=finished, resident=resident, device_bytes=pool,
                     host_bytes=5 * 10**8, kernels=kernels, expected=expected)  # fmt: skip

    memory = Memory([at(440, 640, "1"), at(880, 1150, "2"), at(880, 1150, "3")])
    assert memory.kept(1000) == pytest.approx(1100)
    assert memory.kept(1e12) == 10**9
    assert [(x, y) for _, x, y in memory.device_rows] == [(200.0, 200.0), (200.0, 270.0)]
    assert {y for *_, y in memory.host_rows} == {4.4e8}
    assert line([(100.0, 140.0)], 900.0, 1.0).value == pytest.approx(940.0)
    assert line([(100.0, 250.0), (500.0, 450.0)], 900.0, 0.5).value == pytest.approx(650.0)
    assert line([], 70.0, 1.0).value == 70.0
    assert slope([]) == pytest.approx(slope([(5e8, 4e8)]))
    assert slope([(1e9, 6e8), (9e9, 14e8)]) < 0.2
    assert added([Estimate(3.0, 0.1), Estimate(4.0, 0.1)]).sigma == pytest.approx(0.5 / 7)


def test_kernels_are_counted_where_they_are_waited_for() -> None:
    def node(name: str) -> NodeWork:
        return NodeWork(name, toys.field, {}, {}, "cpu", "1")

    taken()  # what earlier tests of this process got
    watch = Stopwatch()
    with watch.running(node("outer")):
        with getting(for_lattice=True) as kernel:
            with getting():
                kernel.compiled = True
            got(0.0, compiled=False)  # a part of it
        with watch.running(node("inner")), getting():
            time.sleep(0.02)
    counts: list[int] = []
    with telling(counts.append):
        with getting():
            pass
        for _ in range(2):
            got(0.0, compiled=True)
    assert counts == [1, 2]
    (inner, outer), outside = watch.take()
    assert {kind: each.number for kind, each in inner.kernels.items()} == {READ: 1}
    assert inner.kernels[READ].seconds >= 0.02 > outer.seconds
    assert {kind: each.number for kind, each in outer.kernels.items()} == {COMPILED + FOR_LATTICE: 1}
    assert {kind: each.number for kind, each in outside.items()} == {READ: 1, COMPILED: 2}


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

    def wall_and_work(workers: int) -> tuple[float, float]:
        taken: list[float] = []

        def per_node(name: str, first: bool) -> float:
            taken.append(seconds[name] + (0.5 if first else 0.0))
            return taken[-1]

        wall, _ = schedule(tasks, workers, per_node, lambda *_: 0.0)
        return wall, sum(taken)

    assert wall_and_work(1) == (4 * 3.0 + 2 * 0.5, 4 * 3.0 + 2 * 0.5)
    assert wall_and_work(2) == (pytest.approx(7.0), 4 * 3.0 + 4 * 0.5)
    assert wall_and_work(50)[0] == pytest.approx(4.0)  # field, then shifted, each for the first time


def test_resident_results_stay_on_a_worker_and_other_transient_ones_do_not(store: Store) -> None:
    """With one worker that of each configuration; blocks of noise of one share it."""
    workflow = Workflow("toys")
    field = workflow.add(toys.field, place=Place(over={"config": ["a", "b", "c"]}))
    noise = Place(over={"noise": range(4)}, chunk={"noise": 2})
    setup = workflow.add(toys.Costing(toys.setup, device_memory=1000), field)
    workflow.add(toys.with_setup, setup, place=noise)
    bulk = workflow.add(toys.Costing(toys.bulk, device_memory=70), field, place=noise)
    workflow.add(toys.first, bulk)
    tasks = plan_tasks(plan(workflow, store))
    assert schedule(tasks, 1, lambda *_: 1.0, lambda *_: 0.0)[1] == 3 * 1000


def test_forecast_learns_from_a_store_and_the_report_reconciles_it(store, compute):
    compute(campaign(2))
    model = Model(samples([store]))
    assert {each.stage for each in model.samples} == {"field", "fragile"}
    assert all(each.host_bytes and each.files == 1 and each.expected for each in model.samples)
    larger = plan(campaign(6), store)
    (machine,) = model.machines()
    result = forecast(larger, model, Setting(2, {"cpu": machine}, 2), (3.0, 1.0))
    assert {node.node: node.chunks for node in result.nodes} == {"field": 4, "fragile": 4}
    assert result.total.files == 8
    assert result.total.stored.value == pytest.approx(
        2 * sum(each.stored for each in model.samples), rel=0.02
    )
    wall = result.total.wall_seconds.value
    assert wall > 4.0
    assert result.total.node_hours.value == pytest.approx(wall / 3600)
    keep(result, store)
    compute(campaign(6))
    (section,) = reconciled(store, "toys", accounts(store, "toys"))
    (table,) = (part for part in section.parts if isinstance(part, Table))
    stored = {row[0]: row[-1] for row in table.rows if row[2] == "bytes stored"}
    assert stored == {"field": pytest.approx(1.0, abs=0.05), "fragile": pytest.approx(1.0, abs=0.05)}
    assert all(row[1] == 4 for row in table.rows)


def test_page_says_what_nobody_measured_and_where_nothing_is_known(store: Store) -> None:
    result = forecast(plan(campaign(2), store), Model([]), Setting(1, {"cpu": HERE}, 1), (2.0, 0.5))
    shown = dict(totals(result.total))
    assert shown["energy"].startswith("unknown")
    assert shown["files written"] == "4"
    assert "No record of earlier chunks" in sections(result, [result.total], [])[0].text
    learned = replace(result, records=64)
    told = "Learned from 64 records; no timings on that machine of field, mean: their times are"
    for unknown, text in (((), "Learned from 64 records."), (("field", "mean"), told)):
        assert text in learned_from(learned, unknown)
        assert learned_from(learned, unknown) in sections(learned, [], [], unknown)[0].text


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
