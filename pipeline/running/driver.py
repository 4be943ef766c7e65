"""`run`: compute what a plan says is missing."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

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
from pipeline.running.graph import TaskPlan, plan_tasks, told_durations, widest_level
from pipeline.running.limits import LIMITS
from pipeline.running.memory_advice import check_gpus_per_worker, shortage
from pipeline.running.outcome import Outcome
from pipeline.running.quarantine import Quarantine
from pipeline.running.sharing import Elsewhere, Share, Sharing, homes_of
from pipeline.running.stopping import StopRequest, signals_to
from pipeline.store.claims import Claims, remove_claims
from pipeline.store.lease import job_has_ended
from pipeline.store.lock import alone_for_a_moment, driver_lock, shared_lock
from pipeline.store.store import Store
from pipeline.worker.checks import CHECKS, Checks
from pipeline.worker.events import OTHER_CODE, ChunkState, Event, EventKind
from pipeline.worker.sources import OtherCodeError, code_of, sources_of
from pipeline.worker.work import RunContext
from stages.base.errors import InputError
from stages.base.host_memory import MEMORY_LIMIT

if TYPE_CHECKING:
    from distributed import Client

    from pipeline.running.session import Session
    from pipeline.running.watching import Pages, Watcher
    from pipeline.running.workforce import Workforce

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
    if not plan.missing:  # it may still give new names to chunks that exist
        with suppress(InputError), driver_lock(store, name, job_has_ended):
            keep_plan(store, plan)
        return Outcome(name, plan.workflow, {})
    store.create()
    with _lock(plan, store, name, share) as claims, EventLog(store, name, listener) as log:
        with log.guarded("a look after jobs of earlier runs"):
            for message in cancel_left_jobs(
                store, {each.run for each in claims.others()} if claims else set()
            ):
                log(Event(EventKind.NOTE, message=message))
        sharing = partial(Elsewhere, claims, homes_of(plan), share.waits) if claims and share else None
        quarantine = Quarantine(plan, store, log, stop)
        this = _Run(name, plan, store, chosen, stop, checks, log, quarantine, sharing)
        this.sweep(claims)
        for chunk in plan.lacking:
            this.set_aside(chunk.node.stage.name, chunk.key)
        keep_plan(store, plan)
        with signals_to(stop):
            outcome = this.drive(partial(watcher, store) if watcher else None)
        this.sweep(claims)
        return outcome


def _refuse_misfit(plan: Plan, cluster: Cluster) -> None:
    """Raise InputError where the cluster is not the one that was planned for, or lacks memory."""
    if plan.backend != cluster.backend:
        raise InputError(
            f"the plan is for backend {plan.backend!r}, the cluster's is {cluster.backend!r}: plan again"
        )
    check_gpus_per_worker(plan, cluster)
    if short := shortage(plan, cluster):
        raise InputError(short.text)


@contextmanager
def _lock(plan: Plan, store: Store, run: str, share: Share | None) -> Iterator[Claims | None]:
    """Be the store's only driver, or one of several with the same code, which then has claims."""
    if share:
        code = code_of(chunk.node.stage.function for chunk in plan.everything)
        with shared_lock(store, run, job_has_ended, code) as claims:
            yield claims
    else:
        with driver_lock(store, run, job_has_ended):
            yield None


@dataclass(frozen=True)
class _Run:
    """A run: the plan that it computes into a store on a cluster, and who watches over it."""

    name: str
    plan: Plan
    store: Store
    cluster: Cluster
    stop: StopRequest
    checks: Checks
    log: EventLog
    quarantine: Quarantine
    sharing: Sharing | None

    def sweep(self, claims: Claims | None) -> None:
        """Remove what ended drivers left, unless another one is at work."""
        with (
            self.log.guarded("housekeeping"),
            alone_for_a_moment(self.store) if claims else nullcontext(True) as alone,
        ):
            if alone:
                self.store.sweep()
                drop_old_runs(self.store, self.name)
                remove_claims(self.store, self.name)

    def set_aside(self, stage: str, key: str) -> None:
        """Move a damaged chunk out of the way of its successor."""
        if grave := self.store.set_aside(stage, key):
            text = f"chunk {stage}/{key[:12]} is damaged: moved to {grave}, and computed again"
            self.log(Event(EventKind.DAMAGED, stage=stage, key=key, message=text))

    def drive(self, pages: Callable[[], Pages] | None) -> Outcome:
        """Start the cluster, have it compute the tasks, and tell the log how the run begins and ends."""
        from pipeline.running.workforce import Workforce  # of Dask, which takes a second to import

        began, plan, stop = time.time(), self.plan, self.stop
        with without_collection():
            tasks = plan_tasks(plan)
        with self.log.guarded("the log"):
            _note_start(self.name, plan, self.log)
        states, failures = dict[str, ChunkState](), list[Failure]()
        jobs = JobList(self.store.inside(".runs", self.name))
        demand = Demand(widest_level(tasks), plan.memory, stop.check, jobs, pages)
        with (
            suppress(StartInterruptedError),
            told_durations(tasks, plan.expected_seconds),
            self.cluster.open(demand) as client,
        ):
            workforce = Workforce(client, self.log, stop, LIMITS, queued=self.cluster.queued)
            workforce.wait()
            stop.note_start(time.time() - began)
            if workforce.present:
                _check_resources(workforce.devices, tasks)
            with self._dashboard(client):
                ends = self._carry_out(tasks, client, workforce)
            states, failures = ends.by_key, ends.failures
        outcome = self._outcome(states, failures, time.time() - began)
        with self.log.guarded("the log"):
            _note_end(outcome, self.log)
        return outcome

    @contextmanager
    def _dashboard(self, client: Client) -> Iterator[None]:
        """Tell the address of the pages to the listener, and where it is kept for others of this user."""
        from pipeline.running.watching import kept_address

        with ExitStack() as stack:
            with self.log.guarded("the dashboard"):
                link, folder = client.dashboard_link, self.store.inside(".runs", self.name)
                place = stack.enter_context(kept_address(folder, link))
                self.log(Event(EventKind.CLUSTER_READY, dashboard=link, message=str(place or "")))
            yield

    def _carry_out(self, tasks: Sequence[TaskPlan], client: Client, workforce: Workforce) -> ChunkStates:
        """Run all tasks on the workers, and once more what was damaged or is in doubt."""
        from pipeline.running.session import Session

        context = RunContext(
            store=self.store,
            run=self.name,
            backend=self.plan.backend,
            resident_bytes=_resident_bytes(workforce),
            sources=sources_of(chunk.node.stage.function for chunk in self.plan.everything),
            checks=self.checks,
            gpus_per_worker=self.cluster.gpus_per_worker,
        )
        about = (context, self.log, self.stop, workforce, self.plan.expected_seconds)

        def session_of(tasks: Sequence[TaskPlan]) -> Session:
            return Session(client, tasks, *about, self.quarantine, self.sharing)

        session = session_of(tasks)
        with self._same_code(client, context, session):
            session.drive()
            return self._repair(session, session_of).ends

    @contextmanager
    def _same_code(self, client: Client, context: RunContext, session: Session) -> Iterator[None]:
        """Have all workers compare their code with the driver's, now or when they come."""
        from pipeline.worker.plugins import CodeCheck

        check = CodeCheck(context.run, context.topic, context.sources)
        try:
            client.register_plugin(check)
        except OtherCodeError as error:
            session.refuse(str(error))
        except (ImportError, AttributeError) as error:  # of an installation without the comparison
            session.refuse(f"a worker has another version of quarkline than the driver: {error}")
        except OSError as error:  # a worker that died or does not answer: chunks compare code themselves
            text = f"not all workers have compared their code yet: {error}"
            self.log(Event(EventKind.NOTE, message=text))
        try:
            yield
        finally:
            with suppress(OSError, ValueError):
                client.unregister_worker_plugin(check.name)

    def _repair(self, session: Session, session_of: Callable[[Sequence[TaskPlan]], Session]) -> Session:
        """Compute damaged inputs again, what is in doubt, and what these blocked.

        Returns the session with all states of the run.

        What was damaged together may be found one after the other: it ends after a few times without news.
        """
        stored = {(chunk.node.stage.name, chunk.key) for chunk in self.plan.chunks}
        ends, quarantine = session.ends, self.quarantine
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
            if not (damaged or in_doubt) or self.stop.check() or repairs > REPAIRS:
                break
            for stage, key in sorted(damaged):
                self.set_aside(stage, key)
            keys = {key for _, key in damaged} | in_doubt
            known |= keys
            blocked = {key for key, state in states.items() if state == ChunkState.BLOCKED}
            blocked -= quarantine.below(quarantine.hopeless)
            session = session_of(plan_tasks(self.plan.again(keys | blocked, known)))
            session.drive()
            states = {**states, **dict.fromkeys(blocked, ChunkState.UNFINISHED), **session.ends.by_key}
            failures += session.ends.failures
            damaged = session.ends.damaged & stored
        session.ends.by_key, session.ends.failures = states, failures
        return session

    def _outcome(
        self, ends: Mapping[str, ChunkState], failures: Sequence[Failure], seconds: float
    ) -> Outcome:
        """ends: of chunks by key, as far as they came to one."""
        states: dict[str, Counter[ChunkState]] = {}
        for chunk in self.plan.missing:
            counts = states.setdefault(chunk.node.name, Counter())
            counts[ends.get(chunk.key, ChunkState.UNFINISHED)] += 1
        unfinished = any(counts[ChunkState.UNFINISHED] for counts in states.values())
        reason = self.stop.reason
        stopped = reason if unfinished or reason == OTHER_CODE else ""
        checks = self.log.state.check_counts
        return Outcome(self.name, self.plan.workflow, states, tuple(failures), stopped, seconds, checks)


def _note_start(run: str, plan: Plan, log: EventLog) -> None:
    """Tell what is missing by node, and what a chunk of it is expected to take."""
    counts = Counter(chunk.node.name for chunk in plan.missing)
    seconds = {node: plan.expected_seconds[node] for node in counts if node in plan.expected_seconds}
    memory = {chunk.node.name: chunk.node.cost.memory for chunk in plan.missing}
    about = Event(EventKind.RUN_STARTED, run=run, workflow=plan.workflow, missing=counts)
    log(replace(about, seconds=seconds, memory=memory))


def _note_end(outcome: Outcome, log: EventLog) -> None:
    more = {"status": outcome.exit_status, "checks": asdict(outcome.checks)}
    more |= {"seconds": outcome.seconds, "states": outcome.states}
    log(Event(EventKind.RUN_ENDED, stopped=outcome.stopped, more=more))


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
