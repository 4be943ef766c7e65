"""Runs whose workers die, stop or hang: each ends, says why, and blames only the chunk that is to blame."""

from __future__ import annotations

import logging
import signal
import threading
import time
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import dask
import pytest
import toy_stages as toys
from distributed import Future, LocalCluster

from pipeline import InputError, Outcome, Place, Store, Workflow, plan, run
from pipeline.running.clusters import Demand, StartInterruptedError, address, local
from pipeline.running.clusters.address import Address
from pipeline.running.clusters.choose import choose
from pipeline.running.clusters.jobqueue import cluster_class
from pipeline.running.clusters.local import Local
from pipeline.running.event_log import EventLog, read_events
from pipeline.running.limits import Limits
from pipeline.running.session import Session
from pipeline.running.stopping import StopRequest, signals_to
from pipeline.running.workforce import Workforce
from pipeline.worker import plugins


def fields(names: str, function: object, **parameters: object) -> Workflow:
    w, field = toys.fields(names, "losses")
    w.add(function, field, **parameters)  # type: ignore[arg-type]
    return w


def outcome_of(w: Workflow, store: Store, workers: int = 2, **limits: float) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.running.driver.LIMITS", Limits(**limits))  # type: ignore[arg-type]
        return run(plan(w, store), store, cluster=Local(workers=workers))


def messages(store: Store, outcome: Outcome) -> str:
    return "\n".join(event.message for event in read_events(store, outcome.run))


@pytest.mark.faults
def test_one_chunk_that_kills_its_workers_fails_alone(store: Store, log_path: Path) -> None:
    outcome = outcome_of(fields("abcd", toys.deadly, bad=("b",)), store, deaths=1)
    assert outcome.states["deadly"] == {"done": 3, "failed": 1}, outcome.stopped
    assert [failure.coordinates for failure in outcome.failures] == [{"config": ("b",)}]
    assert "the worker died that computed deadly config=b" in messages(store, outcome)
    assert outcome.exit_status == 1


def test_a_result_that_died_with_its_worker_is_no_loss_of_the_scheduler(
    store: Store, log_path: Path, cluster: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask says that the task ended, and then, before that is heard, that it runs it again."""
    finish, lost = Session._finish_task, list[str]()

    def losing(session: Session, message: Future, *about: dict) -> None:
        if lost:
            finish(session, message, *about)
            return
        lost.append(message.key)
        session._client.loop.add_callback(message._state.lose)
        while message.status != "lost":
            time.sleep(0.01)
        finish(session, message, *about)
        session._client.loop.add_callback(message._state.finish)

    monkeypatch.setattr(Session, "_finish_task", losing)
    w = fields("ab", toys.fragile)
    outcome = run(plan(w, store), store, cluster=cluster)
    assert (outcome.exit_status, outcome.stopped) == (0, "") and lost


def test_a_client_that_gave_its_scheduler_up_is_no_error_of_its_own(store: Store) -> None:
    store.create()
    client = SimpleNamespace(scheduler=None, cluster=None)
    with EventLog(store, "lost") as log:
        workforce = Workforce(client, log, StopRequest(), Limits())  # type: ignore[arg-type]
        assert not workforce.look({})


def test_what_the_client_asks_for_itself_is_no_list_of_workers(cluster: Address) -> None:
    """Its answers, without any worker, take the place of what `scheduler_info` asked for."""
    with cluster.open(Demand(tasks=1, memory=0)) as client:
        ask = client.scheduler_info

        def overtaken(n_workers: int) -> object:
            ask(n_workers=n_workers)
            return ask(n_workers=0)

        client.scheduler_info = overtaken
        workforce = Workforce(client, SimpleNamespace(note=print), StopRequest(), Limits())  # type: ignore[arg-type]
        assert not workforce.look({}) and workforce.present and not workforce.look({})


def test_tracebacks_of_dask_about_what_a_run_survives_are_not_shown() -> None:
    def shown(said: Callable[[logging.LogRecord], bool], message: str, error: BaseException) -> bool:
        about = (type(error), error, None)
        return said(logging.LogRecord("distributed", logging.ERROR, "", 0, message, (), about))

    died = "Worker stream died during communication: %s"
    assert not shown(plugins._not_said_by_the_run, died, OSError())
    assert shown(plugins._not_said_by_the_run, "Scratch folder is full", OSError())
    assert not shown(address._not_of_reconnecting, "", CancelledError())
    assert shown(address._not_of_reconnecting, "", OSError())


@pytest.mark.faults
@pytest.mark.parametrize("bad", ["ace", "abcdef"])
def test_many_chunks_that_kill_their_workers_fail_and_the_others_end(store, log_path, bad):
    outcome = outcome_of(fields("abcdef", toys.deadly, bad=tuple(bad)), store)
    assert outcome.states["deadly"]["failed"] == len(bad)
    assert outcome.states["deadly"]["done"] == 6 - len(bad)


@pytest.mark.faults
def test_a_worker_that_dask_gave_up_is_brought_back(store, log_path, monkeypatch):
    monkeypatch.setattr("pipeline.running.workforce.REVIVAL", 1.0)
    monkeypatch.setitem(local.SETTINGS, "distributed.deploy.lost-worker-timeout", "10ms")
    outcome = outcome_of(fields("ab", toys.deadly, bad=("a",)), store, workers=1, deaths=1)
    assert outcome.states["deadly"] == {"done": 1, "failed": 1}


@pytest.mark.slow
def test_a_chunk_without_progress_is_ended_and_the_others_go_on(store, log_path, monkeypatch):
    monkeypatch.setattr("pipeline.running.session.INTERVAL", 0.2)
    w = fields("abc", toys.endless, bad=("b",), tell=True)
    w.add(toys.loops, w.nodes["endless"], place=Place(over={"noise": [0]}), mass=1.0)
    outcome = outcome_of(w, store, stall=2.0, saying=1.0)
    assert outcome.states["endless"] == {"done": 2, "failed": 1}
    assert outcome.states["loops"] == {"done": 2, "blocked": 1}
    assert "no progress for" in outcome.failures[0].error
    assert "1 chunk running; no progress for" in messages(store, outcome)


@pytest.mark.faults
def test_a_stopped_worker_is_replaced_and_its_chunk_computed(store: Store, log_path: Path) -> None:
    began = time.monotonic()
    outcome = outcome_of(fields("xyz", toys.freezing, bad=("x", "y", "z")), store, silence=4.0)
    assert outcome.exit_status == 0
    assert "gave no sign for" in messages(store, outcome)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("absence", "options", "said"), [(1.0, {}, "lack of workers"), (None, {"time_limit": 2.0}, "time limit")]
)
def test_a_cluster_without_workers_ends_the_run(store, monkeypatch, absence, options, said):
    if absence:
        monkeypatch.setattr("pipeline.running.driver.LIMITS", Limits(absence=absence))
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as empty:
        began, made = time.monotonic(), plan(fields("a", toys.deadly), store)
        outcome = run(made, store, cluster=choose(empty.scheduler_address), **options)
    assert outcome.exit_status == 3 and said in outcome.stopped
    assert time.monotonic() - began < 10


def test_the_start_of_a_cluster_that_takes_too_long_is_not_waited_for() -> None:
    let_go, closed = threading.Event(), threading.Event()

    class Slow:
        def __init__(self) -> None:
            assert let_go.wait(20)

        def close(self) -> None:
            closed.set()

    with pytest.raises(StartInterruptedError):
        local.unless_stopped(Slow, lambda: True)
    let_go.set()
    assert closed.wait(20)


@pytest.mark.parametrize("part", ["LocalCluster", "Client"])
def test_workers_that_do_not_answer_in_time_are_one_clear_error(monkeypatch, part):
    """As on a machine that does too much else: it was a traceback, with the exit code of a failed run."""

    def late(*_: object, **__: object) -> object:
        raise TimeoutError

    monkeypatch.setattr("distributed.LocalCluster", lambda **_: nullcontext())
    monkeypatch.setattr(f"distributed.{part}", late)
    with pytest.raises(InputError, match=r"no worker could be started \(TimeoutError\)"):
        Local(workers=1).open(Demand(1, 0)).__enter__()


def test_a_run_whose_cluster_does_not_start_in_time_ends_with_what_it_has(store, monkeypatch):
    def interrupted(*_: object) -> object:
        raise StartInterruptedError

    monkeypatch.setattr(local, "unless_stopped", interrupted)
    outcome = run(plan(fields("a", toys.deadly), store), store, cluster=Local(workers=1), time_limit=1.0)
    assert outcome.states == {"field": {"unfinished": 1}, "deadly": {"unfinished": 1}}
    assert outcome.exit_status == 3
    assert [event.kind for event in read_events(store, outcome.run)] == ["run-started", "run-ended"]


@pytest.mark.parametrize(
    ("limit", "start", "chunk", "passed", "stops"),
    [
        ((10.0, 2.0), 2.0, 0.0, 6.5, True),  # room for the close of the cluster
        ((100.0, 2.0), 0.0, 30.0, 50.0, False),
        ((100.0, 2.0), 0.0, 30.0, 60.0, True),  # no chunk would end before it
        ((8.0,), 3.3, 0.0, 3.3, False),  # a short one leaves time to compute
    ],
)
def test_what_a_time_limit_leaves(limit, start, chunk, passed, stops):
    stop = StopRequest(*limit)
    if start:
        stop.note_start(start)
    stop.note_duration(chunk)
    stop._started -= passed
    assert stop.check() == stops


def test_limits_of_memory_are_what_the_plan_projects_and_as_before_once_a_task_ran_alone(store):
    few, many = local.worker_memory(2, 0), local.worker_memory(8, 0)
    assert many == few // 4
    assert local.worker_memory(8, few) > few
    assert 2 * few < local.worker_memory(8, 2 * few) <= local.MEMORY_LIMIT

    nannies = {n: SimpleNamespace(memory_manager=SimpleNamespace(memory_limit=100)) for n in range(8)}
    client = SimpleNamespace(cluster=SimpleNamespace(workers=nannies))
    store.create()
    with EventLog(store, "alone") as log:
        workforce = Workforce(client, log, StopRequest(), Limits())  # type: ignore[arg-type]
        with workforce.memory_for_one():
            assert {nanny.memory_manager.memory_limit for nanny in nannies.values()} == {400}
    assert {nanny.memory_manager.memory_limit for nanny in nannies.values()} == {100}


@pytest.mark.faults
def test_a_worker_that_leaks_is_ended_and_its_chunk_fails_alone(store, log_path, monkeypatch):
    monkeypatch.setattr(local, "worker_memory", lambda workers, needed: 600_000_000)
    outcome = outcome_of(fields("ab", toys.leaking, bad=("b",)), store, workers=1, deaths=1)
    assert outcome.states["leaking"] == {"done": 1, "failed": 1}
    assert "perhaps out of memory" in outcome.failures[0].error


@pytest.mark.faults
def test_a_chunk_that_takes_more_than_its_workers_share_is_computed_alone(store, log_path, monkeypatch):
    monkeypatch.setattr(local, "worker_memory", lambda workers, needed: 500_000_000)
    outcome = outcome_of(fields("ab", toys.hungry, size=500_000_000), store, deaths=1)
    assert outcome.states["hungry"] == {"done": 2}
    assert "runs alone, with up to 0.93 GiB" in messages(store, outcome)


def test_settings_that_bring_workers_back_hold_while_the_cluster_lives(store: Store) -> None:
    """A run without a watcher serves no pages."""
    name, heard = "distributed.deploy.lost-worker-timeout", []
    before, w = dask.config.get(name), Workflow("w")
    w.add(toys.field, place=Place(over={"config": ["a"]}))

    def listen(event: dict) -> None:
        if event["event"] == "cluster-ready":
            heard.append((event["dashboard"], dask.config.get(name)))

    run(plan(w, store), store, cluster=Local(workers=1), listener=listen, watcher=None)
    assert heard == [("", "45s")] and dask.config.get(name) == before


def test_slurm_leaves_the_interrupt_alone() -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    before = signal.getsignal(signal.SIGINT)
    cluster_class("slurm")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("sent", "patient"), [("HUP", True), ("HUP HUP", True), ("TERM HUP", True), ("HUP TERM", False)]
)
def test_a_lost_terminal_asks_once_for_a_stop(sent: str, patient: bool) -> None:
    stop, names = StopRequest(), [f"SIG{name}" for name in sent.split()]
    with signals_to(stop):
        for name in names:
            signal.raise_signal(signal.Signals[name])
    assert (stop.check(), stop.reason, not stop.patience_is_over()) == (True, names[0], patient)


def test_a_hang_up_that_nohup_ignores_stays_ignored() -> None:
    stop, before = StopRequest(), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_to(stop):
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not stop.check()


@pytest.mark.parametrize(
    ("forecast", "told", "seconds"),
    [(0.0, True, 600), (50.0, True, 600), (200.0, True, 2000), (0.0, False, 3600), (1000.0, False, 10_000)],
)
def test_a_silent_chunk_gets_ten_times_its_forecast(forecast: float, told: bool, seconds: float) -> None:
    assert Limits().of_chunk(forecast, told) == seconds
