"""The state of a store: who drives it, what is in it, how its last run went."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted, energy_text, format_bytes, text_table
from pipeline.planning.manifest import PART
from pipeline.planning.manifest_files import damaged_manifests, former_manifests, manifests
from pipeline.running.clusters.jobs import job_lists
from pipeline.running.event_log import ADDRESS, log_of, runs, state_of
from pipeline.running.failures import Failures
from pipeline.running.run_state import CheckCounts, RunState, compiling, time_left
from pipeline.store.checkpoint import checkpoints
from pipeline.store.durable import nbytes_of
from pipeline.store.lock import Driver, current_driver
from pipeline.store.object_store import store_at
from pipeline.store.store import Store
from pipeline.worker.events import ChunkState, Event


@dataclass(frozen=True)
class NodeStatus:
    """Chunks of one node of a workflow's last plan."""

    workflow: str
    node: str
    stage: str
    chunks: int
    stored: int


@dataclass(frozen=True)
class RunStatus:
    """State of a run, by its events."""

    run: str
    workflow: str
    started: float
    ended: float | None
    stopped: str
    counts: dict[str, int]
    running: tuple[dict[str, Any], ...]
    """The last event of each chunk that has begun and not ended."""
    missing: int = 0
    """Chunks that it set out to compute."""
    part: float = 0.0
    """Of its work that is done, by the seconds that chunks took before where these are known."""
    seconds_left: float | None = None
    """What the rest takes with as many chunks in work at once; None where nothing says it."""
    failures: tuple[str, ...] = ()
    """What failed and why, in lines for people; errors that differ in numbers alone are one."""
    checks: CheckCounts = field(default_factory=CheckCounts)
    log: str = ""
    """File with all events, tracebacks among them."""

    @property
    def ends(self) -> str:
        """`3 done, 1 failed`; '' where no chunk has ended."""
        return ", ".join(f"{number} {state}" for state, number in self.counts.items())


@dataclass(frozen=True)
class StageEnergy:
    """Energy of the chunks of a stage that were computed, repeated ones among them."""

    stage: str
    joules: float | None
    """Of those that something measured; None where that is none of them."""
    measured: int
    unmeasured: int
    """Number of chunks whose energy nothing measured."""


@dataclass(frozen=True)
class Status:
    """State of a store: its driver, its workflows' nodes, its last run, chunks in flight."""

    store: str
    driver: Driver | None
    nodes: tuple[NodeStatus, ...]
    last_run: RunStatus | None
    checkpoints: tuple[tuple[str, int], ...] = ()
    """Stage and bytes of each chunk in flight whose state is kept."""
    left_jobs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Runs whose driver is gone, with batch jobs that may be queued still."""
    energy: tuple[StageEnergy, ...] = ()
    """Joules by stage over all runs whose logs are kept."""
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Files that were run as each workflow, with what `--set` changed; the first is the one that is shown."""
    unread: tuple[str, ...] = ()
    """Files of `.workflows/` that should say what a workflow has, and are damaged."""

    def __str__(self) -> str:
        driven = f"driven by {self.driver}" if self.driver else "no active run"
        rows = [[n.workflow, n.node, n.stage, str(n.stored), str(n.chunks)] for n in self.nodes]
        head = ["workflow", "node", "stage", "stored", "of"]
        lines = [f"store {self.store}: {driven}", *text_table(head, rows, left=(0, 1, 2))]
        lines += [
            "\n  and before by ".join([f"{workflow} as run by {files[0]}", *files[1:]])
            for workflow, files in self.files.items()
            if len(files) > 1 or " --set " in files[0]
        ]
        lines += [
            f"{path} is damaged, so the state of its workflow is not shown; no chunk is lost, and "
            "`quarkline run` with the workflow's file writes it again"
            for path in self.unread
        ]
        lines += [
            f"in flight: {stage}, checkpoint of {format_bytes(nbytes)}" for stage, nbytes in self.checkpoints
        ]
        lines += [
            f"jobs {', '.join(jobs)} of run {run}, whose driver is gone, may still be queued: "
            "the next run cancels them"
            for run, jobs in self.left_jobs
        ]
        lines += energy_lines(self.energy)
        return "\n".join([*lines, *_describe_run(self.last_run, self.driver)])


def status(store: Store | str | os.PathLike[str]) -> Status:
    """The state of a store.

    Raises:
        InputError: there is no store.
    """
    store = store_at(store)
    present = store.chunks()
    known, former = manifests(store), former_manifests(store)
    files = {
        last.workflow: tuple(each.file for each in (last, *former) if each.workflow == last.workflow)
        for last in known
        if last.file
    }
    nodes = tuple(
        NodeStatus(
            manifest.workflow,
            name,
            node.stage,
            len(node.chunks),
            sum(map(present.__contains__, node.chunk_ids)),
        )
        for manifest in known
        for name, node in manifest.stored.items()
    )
    in_flight = tuple((folder.parent.name, nbytes_of(folder)) for folder in checkpoints(store.checkpoints))
    driver = current_driver(store)
    states = {run: state_of(store, run) for run in runs(store)}
    last = _last_run(store, states, driver.run if driver else "")
    left = tuple(
        (jobs.folder.name, tuple(jobs.ids()))
        for jobs in job_lists(store)
        if not driver or driver.run != jobs.folder.name
    )
    spent, unread = energies(states.values()), tuple(map(str, damaged_manifests(store, known)))
    return Status(str(store.path), driver, nodes, last, in_flight, left, spent, files, unread)


def _last_run(store: Store, states: Mapping[str, RunState], current: str) -> RunStatus | None:
    """The current run, else the last one, or the one before where that only averaged what it left complete.

    The current one has not always the last name: a clock may have been wrong before.
    """
    newest = sorted(states, key=lambda run: (run == current, run), reverse=True)
    known = (run_status(store, run, states[run]) for run in newest)
    return next((run for run in known if run.ended is None or not run.workflow.endswith(PART)), None)


def run_status(store: Store, run: str, state: RunState | None = None) -> RunStatus:
    """State of a run that ended or goes on; state: by its events, read here where it is not known."""
    state = state or state_of(store, run)
    over, finished = state.is_over, state.finished
    return RunStatus(
        run=run,
        workflow=state.first.workflow or "?",
        started=state.first.time or _begun(run),
        ended=state.last.time if over else None,
        stopped=state.last.stopped if over else "",
        counts=state.ends,
        running=() if over else tuple(event.as_dict() for event in state.running.values()),
        missing=sum(state.first.missing.values()),
        part=state.part_done(finished),
        seconds_left=None if over else state.seconds_left(finished),
        failures=tuple(_failures(state)),
        checks=state.check_counts,
        log=str(log_of(store, run)),
    )


def _begun(run: str) -> float:
    """The local time in a run's name, in seconds since 1970: one that has just begun has no event yet."""
    with suppress(ValueError):
        return time.mktime(time.strptime(run[:15], "%Y%m%d-%H%M%S"))
    return 0.0


def _failures(state: RunState) -> list[str]:
    left = state.ends.get(ChunkState.FAILED, 0) - len(state.failed)
    more = [f"failed: {counted(left, 'chunk')} more, see the log"] if left else []
    return [*Failures.of(state.failed).lines(), *more]


def _describe_run(run: RunStatus | None, driver: Driver | None) -> list[str]:
    if run is None:
        return []
    counts = run.ends or "nothing yet"
    counts += f", of {counted(run.missing, 'chunk')}" if run.missing else ""
    details = [*run.failures, str(run.checks), f"log: {run.log}"]
    if run.ended is not None:
        how, took = f"stopped by {run.stopped}" if run.stopped else "ended", run.ended - run.started
        return [f"last run {run.run} {how} after {duration_text(took)}: {counts}", *details]
    if driver is None or driver.run != run.run:
        return [f"last run {run.run} was interrupted: {counts}", *details]
    age = time.time() - run.started
    left = compiling(map(Event.of, run.running)) or time_left(run.seconds_left)
    now = f"{counts}, {len(run.running)} running{f', {left}' if left else ''}"
    return [
        f"run {run.run} is {duration_text(age)} old: {now}",
        *details,
        f"dashboard: its address, which holds a secret, is in {Path(run.log).with_name(ADDRESS)}, which only "
        "the user of the run can read",
    ]


def energies(states: Iterable[RunState]) -> tuple[StageEnergy, ...]:
    """Energy by stage over some runs, in the order of their first chunks."""
    joules, measured, unmeasured = Counter[str](), Counter[str](), Counter[str]()
    for state in states:
        joules.update(state.joules)
        measured.update(state.measured)
        unmeasured.update(state.unmeasured)
    return tuple(
        StageEnergy(stage, joules[stage] if measured[stage] else None, measured[stage], unmeasured[stage])
        for stage in dict.fromkeys([*measured, *unmeasured])
    )


def energy_lines(stages: Sequence[StageEnergy]) -> list[str]:
    """The sum, and each stage's part, for people; nothing where nothing was computed."""
    if not stages:
        return []
    known = {each.stage: each.joules for each in stages if each.joules is not None}
    without = sum(each.unmeasured for each in stages)
    if not known:
        return [f"energy: not measured ({counted(without, 'chunk')}: no counter of the device can be read)"]
    parts = ", ".join(f"{stage} {energy_text(joules)}" for stage, joules in known.items())
    missing = f"; without {counted(without, 'chunk')} that nothing measured" if without else ""
    return [f"energy: {energy_text(sum(known.values()))} ({parts}){missing}"]
