"""`run`: compute what a plan says is missing."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial

from distributed import Client

from pipeline.planning.chunk import without_collection
from pipeline.planning.history import keep_plan
from pipeline.planning.plan import Plan
from pipeline.running.chunk_states import ChunkStates
from pipeline.running.clusters import Cluster, Demand, StartInterruptedError
from pipeline.running.clusters.choose import choose
from pipeline.running.clusters.guard import refuse_repeated_script
from pipeline.running.clusters.jobs import JobList, cancel_left_jobs
from pipeline.running.event_log import EventLog, Listener, drop_old_runs
from pipeline.running.failures import Failure
from pipeline.running.graph import TaskPlan, plan_tasks, widest_level
from pipeline.running.limits import LIMITS
from pipeline.running.memory_advice import check_gpus_per_worker, shortage
from pipeline.running.outcome import Outcome
from pipeline.running.quarantine import CheckCounts, Quarantine
from pipeline.running.session import Session
from pipeline.running.sharing import Elsewhere, Share, Sharing, homes_of
from pipeline.running.stopping import StopRequest, signals_to
from pipeline.running.watching import Watcher
from pipeline.running.workforce import Workforce
from pipeline.store.claims import Claims, remove_claims
from pipeline.store.lease import job_has_ended
from pipeline.store.lock import alone_for_a_moment, driver_lock, shared_lock
from pipeline.store.store import Store
from pipeline.worker.checks import CHECKS, Checks
from pipeline.worker.events import OTHER_CODE, ChunkState, Event, EventKind
from pipeline.worker.sources import CodeCheck, OtherCodeError, code_of, sources_of
from pipeline.worker.work import RunContext
from stages.base.errors import InputError
from stages.base.host_memory import MEMORY_LIMIT

REPAIRS = 5
"""Times that a run computes damaged chunks again without that it finds others on its way."""

RESIDENT_SHARE = 0.25
"""Of the machine's memory, shared by its workers, for resident results that lie in it."""


def run(
    plan: Plan,
    store: Store | str | os.PathLike[str],
    *,
    cluster: str | Cluster = "local",
    time_limit: float | None = None,
    checks: Checks = CHECKS,
    listener: Listener | None = None,
    share: Share | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Compute the missing chunks of a plan into a store. Starts a cluster only if something is missing.

    Args:
        plan: the chunks that are missing, and those that they read.
        store: where chunks are committed, or its folder; the plan was made against it.
        cluster: 'local', 'cuda', 'slurm', an address or scheduler file, or a cluster with its options.
        time_limit: seconds after which the run has ended, start and close of the cluster included (these are
            expected to take equally long); signals end it likewise.
        checks: of what workers hold and compute, against silent errors of memory and arithmetic.
        listener: called with every event (a dictionary with 'time', 'event' and more), in this thread.
        share: to be one of several drivers of the store, each with its share of the chunks; by default this
            process is the only one.
        watcher: opens pages of the store, which a scheduler that the run starts serves; `pipeline.run` takes
            the dashboard by default, and None for none.

    Returns:
        What was done; failures of chunks are in it, and not raised.

    Raises:
        InputError: the store is driven by another process or cannot be written, the cluster cannot be started
            or does not offer what the stages ask for (memory among it), the plan was made for another
            backend, a script calls this without a guard.
    """
    refuse_repeated_script()
    store = Store.at(store)
    stop = StopRequest(time_limit, LIMITS.grace)
    chosen = choose(cluster) if isinstance(cluster, str) else cluster
    _refuse_misfit(plan, chosen)
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    if plan.missing:
        this = _Run(name, plan, store, chosen, stop, checks, watcher)
        return _compute(this, share, listener)
    with suppress(InputError):
        _keep_manifest(plan, store, name)
    return Outcome(name, plan.workflow, {})


@dataclass(frozen=True)
class _Run:
    """A run: the plan that it computes into a store on a cluster, reasons to stop it, and its bounds."""

    name: str
    plan: Plan
    store: Store
    cluster: Cluster
    stop: StopRequest
    checks: Checks
    watcher: Watcher | None


def _refuse_misfit(plan: Plan, cluster: Cluster) -> None:
    """Raise InputError where the cluster is not the one that was planned for, or lacks memory."""
    if plan.backend != cluster.backend:
        raise InputError(
            f"the plan is for backend {plan.backend!r}, the cluster's is {cluster.backend!r}: plan again"
        )
    check_gpus_per_worker(plan, cluster)
    if short := shortage(plan, cluster):
        raise InputError(short.text)


def _compute(run: _Run, share: Share | None, listener: Listener | None) -> Outcome:
    """Compute what is missing, as the store's only driver or as one of several, and leave the store clean."""
    plan, store, name = run.plan, run.store, run.name
    store.create()
    with _lock(run, share) as claims, EventLog(store, name, listener) as log:
        with log.guarded("a look after jobs of earlier runs"):
            for message in cancel_left_jobs(store, _runs_of_others(claims)):
                log(Event(EventKind.NOTE, message=message))
        _sweep(store, name, claims, log)
        sharing = partial(Elsewhere, claims, homes_of(plan), share.waits) if claims and share else None
        for chunk in plan.lacking:
            _set_aside(store, chunk.node.stage.name, chunk.key, log)
        keep_plan(store, plan)
        with signals_to(run.stop):
            outcome = _drive(run, log, sharing)
        _sweep(store, name, claims, log)
        return outcome


@contextmanager
def _lock(run: _Run, share: Share | None) -> Iterator[Claims | None]:
    """Be the store's only driver, or one of several with the same code, which then has claims."""
    if share:
        code = code_of(chunk.node.stage.function for chunk in run.plan.everything)
        with shared_lock(run.store, run.name, job_has_ended, code) as claims:
            yield claims
    else:
        with driver_lock(run.store, run.name, job_has_ended):
            yield None


def _runs_of_others(claims: Claims | None) -> set[str]:
    return {driver.run for driver in claims.others()} if claims else set()


def _sweep(store: Store, run: str, claims: Claims | None, log: EventLog) -> None:
    """Remove what ended drivers left, unless another one is at work."""
    with (
        log.guarded("housekeeping"),
        alone_for_a_moment(store) if claims else nullcontext(True) as alone,
    ):
        if alone:
            store.sweep()
            drop_old_runs(store, run)
            remove_claims(store, run)


def _keep_manifest(plan: Plan, store: Store, name: str) -> None:
    """A plan without anything to do may still give new names to chunks that exist."""
    with driver_lock(store, name, job_has_ended):
        keep_plan(store, plan)


def _drive(run: _Run, log: EventLog, sharing: Sharing | None) -> Outcome:
    """Start the cluster, have it compute the tasks, and tell the log how the run begins and ends."""
    began, plan = time.time(), run.plan
    with without_collection():
        tasks = plan_tasks(plan)
    with log.guarded("the log"):
        _note_start(run, log)
    states, failures = dict[str, ChunkState](), list[Failure]()
    quarantine = Quarantine(plan, run.store, log, run.stop)
    jobs = JobList(run.store.inside(".runs", run.name))
    pages = partial(run.watcher, run.store) if run.watcher else None
    demand = Demand(widest_level(tasks), plan.memory, run.stop.check, jobs, pages)
    with suppress(StartInterruptedError), run.cluster.open(demand) as client:
        workforce = Workforce(client, log, run.stop, LIMITS, queued=run.cluster.queued)
        workforce.wait()
        run.stop.note_start(time.time() - began)
        if workforce.present:
            _check_resources(workforce.devices, tasks)
        ends = _carry_out(run, tasks, client, workforce, quarantine, log, sharing)
        states, failures = ends.by_key, ends.failures
    outcome = _outcome(run, states, failures, time.time() - began, quarantine.counts)
    with log.guarded("the log"):
        _note_end(outcome, log)
    return outcome


def _note_start(run: _Run, log: EventLog) -> None:
    """Tell what is missing by node, and what a chunk of it is expected to take."""
    plan = run.plan
    counts = dict(Counter(chunk.node.name for chunk in plan.missing))
    seconds = {node: plan.expected_seconds[node] for node in counts if node in plan.expected_seconds}
    memory = {chunk.node.name: chunk.node.cost.memory for chunk in plan.missing}
    about = Event(EventKind.RUN_STARTED, run=run.name, workflow=plan.workflow, missing=counts)
    log(replace(about, seconds=seconds, memory=memory))


def _note_end(outcome: Outcome, log: EventLog) -> None:
    came_to = {
        "status": outcome.exit_status,
        "checks": asdict(outcome.checks),
        "seconds": outcome.seconds,
        "states": outcome.states,
    }
    log(Event(EventKind.RUN_ENDED, stopped=outcome.stopped, more=came_to))


def _carry_out(
    run: _Run,
    tasks: Sequence[TaskPlan],
    client: Client,
    workforce: Workforce,
    quarantine: Quarantine,
    log: EventLog,
    sharing: Sharing | None,
) -> ChunkStates:
    """Run all tasks on the workers, and once more what was damaged or is in doubt; how all chunks ended."""
    context, expected = _context(run, workforce), run.plan.expected_seconds
    with log.guarded("the dashboard"):
        log(Event(EventKind.CLUSTER_READY, dashboard=client.dashboard_link))

    def session_of(tasks: Sequence[TaskPlan]) -> Session:
        return Session(client, tasks, context, log, run.stop, workforce, expected, quarantine, sharing)

    session = session_of(tasks)
    with _same_code(client, context, session, log):
        session.drive()
        return _repair(run, session, session_of, quarantine, log).ends


def _context(run: _Run, workforce: Workforce) -> RunContext:
    return RunContext(
        store=run.store,
        run=run.name,
        backend=run.plan.backend,
        resident_bytes=_resident_bytes(workforce),
        sources=sources_of(chunk.node.stage.function for chunk in run.plan.everything),
        checks=run.checks,
        gpus_per_worker=run.cluster.gpus_per_worker,
    )


@contextmanager
def _same_code(client: Client, context: RunContext, session: Session, log: EventLog) -> Iterator[None]:
    """Have all workers compare their code with the driver's, now or when they come."""
    check = CodeCheck(context.run, context.topic, context.sources)
    try:
        client.register_plugin(check)
    except OtherCodeError as error:
        session.refuse(str(error))
    except (ImportError, AttributeError) as error:  # of an installation that does not have the comparison
        session.refuse(f"a worker has another version of quarkline than the driver: {error}")
    except OSError as error:  # a worker that died or does not answer: chunks compare code themselves
        log(Event(EventKind.NOTE, message=f"not all workers have compared their code yet: {error}"))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            client.unregister_worker_plugin(check.name)


def _repair(
    run: _Run,
    session: Session,
    session_of: Callable[[Sequence[TaskPlan]], Session],
    quarantine: Quarantine,
    log: EventLog,
) -> Session:
    """Compute damaged inputs again, what is in doubt, and what these blocked.

    Returns the session with all states of the run.

    What was damaged together may be found one after the other: it ends after a few times without news.
    """
    stored = {(chunk.node.stage.name, chunk.key) for chunk in run.plan.chunks}
    ends = session.ends
    states, failures, damaged = dict(ends.by_key), list(ends.failures), ends.damaged & stored
    failed_checks: set[str] = set()
    known, repairs = set[str](), 0
    while True:
        in_doubt = quarantine.settle()
        states |= dict.fromkeys(in_doubt, ChunkState.UNFINISHED)
        for key in quarantine.hopeless.keys() - failed_checks:
            failed_checks.add(key)
            states[key] = ChunkState.FAILED
            failures.append(quarantine.hopeless[key])
        repairs = 0 if any(key not in known for _, key in damaged) else repairs + 1
        if not (damaged or in_doubt) or run.stop.check() or repairs > REPAIRS:
            break
        for stage, key in sorted(damaged):
            _set_aside(run.store, stage, key, log)
        keys = {key for _, key in damaged} | in_doubt
        known |= keys
        blocked = {key for key, state in states.items() if state == ChunkState.BLOCKED}
        blocked -= quarantine.below(quarantine.hopeless)
        session = session_of(plan_tasks(run.plan.again(keys | blocked, known)))
        session.drive()
        states = {**states, **dict.fromkeys(blocked, ChunkState.UNFINISHED), **session.ends.by_key}
        failures += session.ends.failures
        damaged = session.ends.damaged & stored
    session.ends.by_key, session.ends.failures = states, failures
    return session


def _set_aside(store: Store, stage: str, key: str, log: EventLog) -> None:
    """Move a damaged chunk out of the way of its successor."""
    if grave := store.set_aside(stage, key):
        text = f"chunk {stage}/{key[:12]} is damaged: moved to {grave}, and computed again"
        log(Event(EventKind.DAMAGED, stage=stage, key=key, message=text))


def _check_resources(offered: float, tasks: Sequence[TaskPlan]) -> None:
    """A task whose resources nobody has would wait for ever."""
    for task in tasks:
        if task.device > offered:
            node = task.chunks[0].node.name
            raise InputError(
                f"node {node!r} asks for Resources(device={task.device}), "
                f"but no worker of this cluster offers more than device={offered:g}"
            )


def _resident_bytes(workforce: Workforce) -> int:
    return int(RESIDENT_SHARE * MEMORY_LIMIT / max(1, workforce.count))


def _outcome(
    run: _Run,
    ends: Mapping[str, ChunkState],
    failures: Sequence[Failure],
    seconds: float,
    checks: CheckCounts,
) -> Outcome:
    """ends: of chunks by key, as far as they came to one."""
    states: dict[str, Counter[ChunkState]] = {}
    for chunk in run.plan.missing:
        counts = states.setdefault(chunk.node.name, Counter())
        counts[ends.get(chunk.key, ChunkState.UNFINISHED)] += 1
    unfinished = any(counts[ChunkState.UNFINISHED] for counts in states.values())
    reason = run.stop.reason
    stopped = reason if unfinished or reason == OTHER_CODE else ""
    return Outcome(run.name, run.plan.workflow, states, tuple(failures), stopped, seconds, checks)
