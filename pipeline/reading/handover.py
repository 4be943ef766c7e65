"""Facts for a person who takes a store over: what ran, what is missing, what it cost, how to go on."""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.declare.coordinates import describe
from pipeline.planning.manifest import PART, Manifest, NodeRecord
from pipeline.planning.manifest_files import manifests
from pipeline.planning.workflow import options_text
from pipeline.reading.status import RunStatus, run_status
from pipeline.running.event_log import runs, state_of
from pipeline.running.failures import FailedChunks
from pipeline.running.run_state import RunState
from pipeline.store.checkpoint import checkpoints
from pipeline.store.ledger import Ledger, LedgerEvent, LedgerState
from pipeline.store.lock import current_drivers
from pipeline.store.object_store import store_at
from pipeline.store.plain_files import text_of
from pipeline.store.provenance import code_text
from pipeline.store.record import Record
from pipeline.store.store import ChunkId, Store
from stages.base.errors import InputError

READERS = 4

NOT_YET = "not computed yet"


@dataclass(frozen=True)
class Missing:
    """Chunks of a node that are missing for one reason."""

    node: str
    chunks: int
    where: str
    """Their coordinates, the first of many."""
    reason: str


@dataclass(frozen=True)
class NodeCost:
    """A node's chunks, and what those that are there took."""

    node: str
    stage: str
    stored: int
    chunks: int
    seconds: float
    joules: float | None
    """None unless each of them was measured."""


@dataclass(frozen=True)
class WorkflowState:
    """A workflow as last run into the store."""

    name: str
    title: str
    file: str
    """Text of its parameter file; '' where a run of an earlier version did not keep it."""
    parameters: dict[str, Any]
    """Sections of that file as the results name them."""
    path: str
    """The file, as it was given, with what `--set` changed in it."""
    folder: str
    """Folder where paths in it begin."""
    command: str
    """The command that goes on."""
    nodes: tuple[NodeCost, ...]
    missing: tuple[Missing, ...]

    @property
    def is_complete(self) -> bool:
        """True if nothing is missing."""
        return not self.missing


@dataclass(frozen=True)
class JobCost:
    """A batch job, by the ledger; what it took is None where its end was not written."""

    job: str
    seconds: float | None
    node_seconds: float | None
    joules: float | None
    commits: int | None
    reason: str
    """End of the job."""
    origin: str
    """The store whose ledger it stood in first; '' for this one."""
    charged: float
    """Node-seconds that count: as above, or since it began, its walltime at most."""


@dataclass(frozen=True)
class Handover:
    """All that a person needs who takes a store over."""

    store: str
    written: str
    """Time, UTC."""
    drivers: tuple[str, ...]
    """Those at work now."""
    workflows: tuple[WorkflowState, ...]
    targets: tuple[str, ...]
    """What workflows with a target say of it."""
    runs: tuple[RunStatus, ...]
    """The newest first."""
    codes: dict[str, int]
    """Chunks by version and commit of the code that computed them."""
    devices: dict[str, int]
    """Chunks by machine and device."""
    jobs: tuple[JobCost, ...]
    campaigns: dict[str, str]
    """Files of what was submitted to a batch system, by name: site, nodes, walltime, budget."""
    stops: tuple[str, ...]
    """Reasons why such a campaign submits no further jobs."""
    damaged: tuple[str, ...]
    """Chunks that are not what was written, and those that were set aside."""
    in_flight: tuple[str, ...]
    """Stages of chunks whose state is kept."""

    @property
    def seconds(self) -> float:
        """Seconds of work of all chunks."""
        return sum(node.seconds for workflow in self.workflows for node in workflow.nodes)

    @property
    def joules(self) -> float | None:
        """Energy of all chunks; None unless each was measured."""
        return _total(node.joules for workflow in self.workflows for node in workflow.nodes if node.stored)


def handover(
    store: Store | str | os.PathLike[str],
    targets: Iterable[str] = (),
    listener: Callable[[int, int], None] | None = None,
) -> Handover:
    """Gather the facts; reads the record of every chunk that the workflows name.

    Args:
        store: the store, or its folder.
        targets: lines that workflows say of their targets.
        listener: called with (records read, all records) now and then.

    Raises:
        InputError: there is no store.
    """
    store = store_at(store)
    known, ledger = manifests(store), Ledger(store).state()
    states = {run: state_of(store, run) for run in runs(store)}
    present = store.chunks()
    named = {chunk for manifest in known for node in manifest.nodes.values() for chunk in node.chunk_ids}
    records, damaged = _records(store, named & present, listener)
    return Handover(
        store=str(store.path),
        written=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        drivers=tuple(map(str, current_drivers(store))),
        workflows=tuple(_workflow(store, each, present, records, states.values()) for each in known),
        targets=tuple(targets),
        runs=tuple(run_status(store, run, states[run]) for run in reversed(states)),
        codes=dict(Counter(map(_code, records.values())).most_common()),
        devices=dict(Counter(map(_device, records.values())).most_common()),
        jobs=tuple(_jobs(ledger)),
        campaigns={
            path.parent.name: text_of(path) for path in sorted((store.path / ".campaigns").glob("*/*.json"))
        },
        stops=tuple(_stops(ledger)),
        damaged=(*damaged, *_set_aside(store)),
        in_flight=tuple(folder.parent.name for folder in checkpoints(store.checkpoints)),
    )


Records = dict[ChunkId, Record]


def _records(
    store: Store, chunks: set[ChunkId], listener: Callable[[int, int], None] | None
) -> tuple[Records, list[str]]:
    """Records of chunks by stage and key, and what is wrong with the others."""

    def read(chunk: ChunkId) -> Record | str:
        try:
            return Record.of(store.record(*chunk))
        except InputError as error:
            return str(error)

    records, damaged = Records(), list[str]()
    with ThreadPoolExecutor(READERS) as pool:
        for done, (chunk, found) in enumerate(zip(chunks, pool.map(read, chunks), strict=True), start=1):
            if isinstance(found, str):
                damaged.append(found)
            else:
                records[chunk] = found
            if listener:
                listener(done, len(chunks))
    return records, damaged


def _workflow(
    store: Store,
    manifest: Manifest,
    present: set[ChunkId],
    records: Records,
    states: Iterable[RunState],
) -> WorkflowState:
    kept = store.path / ".workflows" / f"{manifest.workflow}.yaml"
    text = text_of(kept)
    path, folder = manifest.source.get("path", ""), manifest.source.get("folder", "")
    errors = _errors(states, manifest.workflow)
    stored = manifest.stored.items()
    file = str(kept) if text else path or "WORKFLOW.yaml"
    changed = options_text(manifest.changes)
    go_on = shlex.join(["quarkline", "run", file, "--store", str(store.path)]) + changed
    return WorkflowState(
        name=manifest.workflow,
        title=str(manifest.about.get("title", manifest.workflow)),
        file=text,
        parameters=manifest.about.get("parameter_file", {}),
        path=f"{path}{changed}",
        folder=folder,
        command=f"cd {shlex.quote(folder)} && {go_on}" if folder else go_on,
        nodes=tuple(_cost(name, node, records) for name, node in stored),
        missing=tuple(each for name, node in stored for each in _missing(name, node, present, errors)),
    )


def _cost(name: str, node: NodeRecord, records: Records) -> NodeCost:
    held = [records[chunk] for chunk in node.chunk_ids if chunk in records]
    seconds, joules = sum(record.seconds for record in held), _total(record.joules for record in held)
    return NodeCost(name, node.stage, len(held), len(node.chunks), seconds, joules)


def _total(values: Iterable[float | None]) -> float | None:
    measured = list(values)
    return None if None in measured or not measured else sum(value or 0.0 for value in measured)


def _errors(states: Iterable[RunState], workflow: str) -> dict[tuple[str, str], str]:
    """The last error of each chunk that failed, by node and coordinates."""
    errors = {}
    for state in states:
        if state.first.workflow.removesuffix(PART) == workflow:
            for failure in state.failed:
                errors[failure.node, describe(failure.coordinates)] = failure.error
    return errors


def _missing(
    name: str, node: NodeRecord, present: set[ChunkId], errors: Mapping[tuple[str, str], str]
) -> Iterator[Missing]:
    """Missing chunks by reason: the last failure, or that none computed them yet."""
    shares: dict[str, FailedChunks] = {}
    for place, chunk in zip(node.chunks, node.chunk_ids, strict=True):
        if chunk not in present:
            coordinates = dict(place)
            reason = errors.get((name, describe(coordinates)), NOT_YET)
            shares.setdefault(reason, FailedChunks()).add(coordinates)
    for reason, share in shares.items():
        where = share.named("").strip()
        yield Missing(name, share.chunks, where, reason)


def _jobs(ledger: LedgerState) -> Iterator[JobCost]:
    """Jobs that began, in order; those of other stores have an end alone."""
    silent = {"killed": "killed, or put back into the queue", LedgerEvent.BEGAN: "at work, or killed"}
    for job in ledger.jobs:
        if job.state != LedgerEvent.SUBMITTED:
            spent = (job.seconds, job.node_seconds, job.joules, job.commits)
            reason = silent.get(job.state, job.reason)
            yield JobCost(job.job, *spent, reason, job.origin, charged=job.charged(time.time()))


def _stops(ledger: LedgerState) -> Iterator[str]:
    for stop in ledger.stops:
        chain = "" if stop.chain is None else f", chain {stop.chain}"
        yield f"{stop.campaign or 'campaign'}{chain}: {stop.reason or '?'}"


def _set_aside(store: Store) -> Iterator[str]:
    for path in sorted((store.path / ".damaged").glob("*/*")):
        yield f"set aside: {Path(path.parent.name, path.name[:12])}, moved to {path}"


def _code(record: Record) -> str:
    return f"quarkline {code_text(record.code)}, Python {record.code.get('python', '?')}"


def _device(record: Record) -> str:
    return f"{record.host or '?'}: {record.device or '?'}"
