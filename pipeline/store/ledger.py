"""The ledger of a store's campaign, `<store>/.ledger.jsonl`: jobs and what they cost, never rewritten.

One JSON object a line, `{"format": 1, "time": ..., "event": ..., ...}`. A line is one `write` to a file that
is open for appending, so that drivers on several machines share it; a line that was cut off is skipped.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipeline.store.plain_files import json_lines
from pipeline.store.store import Store
from stages.base.errors import InputError

FORMAT = 1

ORIGIN = "from"
"""Name under which an entry says which store it was brought from."""


class LedgerEvent(StrEnum):
    """Kinds of entries, with what they hold beside the time (seconds since 1970)."""

    SUBMITTED = "submitted"
    """job (id), chain, name, after (id of the job that it waits for, or null), nodes, walltime (seconds),
    memory (bytes of a node, or null)."""
    BEGAN = "began"
    """job, chain, host, nodes, walltime, missing (chunks of the plan that are not committed; null: nobody can
    tell), code (digests of its packages, by name), upgrade (what of it the job before did not have)."""
    ENDED = "ended"
    """job, chain, seconds, node_seconds, joules (null: nothing measures it), commits, missing, reason."""
    BUDGET = "budget"
    """node_hours and joules that the campaign may take; null: no limit."""
    STOPPED = "stopped"
    """reason: why the campaign submits no further jobs; chain, or null for all."""


@dataclass(frozen=True)
class Ledger:
    """Entries of a store, oldest first."""

    store: Store

    @property
    def path(self) -> Path:
        """The file; absent before the first entry."""
        return self.store.inside(".ledger.jsonl")

    def add(self, event: LedgerEvent, **facts: Any) -> None:
        """Append an entry, durably.

        Raises:
            StoreError: it cannot be written.
        """
        self.bring({"format": FORMAT, "time": time.time(), "event": event, **facts})

    def bring(self, entry: Mapping[str, Any]) -> None:
        """Append an entry of another ledger as it is, durably. Raises StoreError."""
        line = f"{json.dumps(entry)}\n".encode()
        with self.store.writing("its ledger"):
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    line = b"\n" + line  # the entry before was cut off: this one is not to be lost with it
                if os.write(handle, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
            finally:
                os.close(handle)

    def entries(self) -> Iterator[dict[str, Any]]:
        """All entries that are whole. Raises InputError where the file cannot be read."""
        try:
            yield from (entry for entry in json_lines(self.path) if "event" in entry)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise InputError(
                f"the ledger {self.path} cannot be read ({error}): mend it, or move it away"
            ) from error


@dataclass(frozen=True)
class Job:
    """A job by its entries: from its submission to its end, or from one of several beginnings to the next.

    A job that is put back into the queue begins again. Times are seconds since 1970; what no entry says is
    None.
    """

    job: str
    """Id in the batch system."""
    campaign: str = ""
    origin: str = ""
    """Store whose ledger it stood in first; '' for this one."""
    chain: int | str = ""
    after: str | None = None
    """Job that it waited for."""
    nodes: int = 1
    walltime: float | None = None
    memory: float | None = None
    submitted: float | None = None
    began: float | None = None
    ended: float | None = None
    until: float | None = None
    """Time at which it was over for certain, without an entry: it began again, or its successor began."""
    missing: int | None = None
    """Chunks when it began."""
    left: int | None = None
    """Chunks that were missing when it ended."""
    seconds: float | None = None
    node_seconds: float | None = None
    joules: float | None = None
    commits: int | None = None
    reason: str | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    """Digests of its packages, by name."""
    upgrade: str = ""
    """Packages of other code than the last job's before it, with both digests."""

    @property
    def state(self) -> str:
        """Kind of its last entry, or `killed`."""
        if self.ended is not None:
            return LedgerEvent.ENDED
        if self.until is not None:
            return "killed"
        return LedgerEvent.SUBMITTED if self.began is None else LedgerEvent.BEGAN

    def charged(self, now: float) -> float:
        """Node-seconds of its cost: as its end says, or since it began, up to its own walltime at most."""
        if self.node_seconds is not None:
            return self.node_seconds
        if self.began is None:
            return 0.0
        walltime = float("inf") if self.walltime is None else self.began + self.walltime
        until = float("inf") if self.until is None else self.until
        return self.nodes * max(0.0, min(now, walltime, until) - self.began)


_NUMBERS = ("nodes", "walltime", "memory", "missing", "seconds", "node_seconds", "joules", "commits")
_OF_JOBS = (LedgerEvent.SUBMITTED, LedgerEvent.BEGAN, LedgerEvent.ENDED)
_TEXTS = ("chain", "after", "reason", "upgrade")


def jobs_of(entries: Iterable[Mapping[str, Any]], campaign: str | None = None) -> list[Job]:
    """Jobs of a ledger, in the order in which they began, or were submitted where they have not begun.

    Args:
        entries: oldest first.
        campaign: only its jobs; by default all, those of merged stores among them.
    """
    jobs: dict[int, Job] = {}
    latest: dict[tuple[str, str, str], int] = {}
    for number, entry in enumerate(entries):
        who, whose, origin = (str(entry.get(part, "")) for part in ("job", "campaign", ORIGIN))
        wanted = campaign is None or (whose, origin) == (campaign, "")
        if not (wanted and who and entry["event"] in _OF_JOBS):
            continue
        name = who, whose, origin
        before, moment = jobs.get(latest.get(name, -1)), _number(entry.get("time"))
        job = _with_facts(before or Job(who, whose, origin), entry)
        if entry["event"] == LedgerEvent.BEGAN:
            if before and before.began is None:
                del jobs[latest[name]]
            elif before:
                jobs[latest[name]] = _over(before, moment)
            waited = latest.get((str(job.after), whose, origin), -1)
            if waited in jobs:
                jobs[waited] = _over(jobs[waited], moment)
            latest[name] = number
            job = replace(_with_facts(_submission(job), entry), began=moment)
        elif entry["event"] == LedgerEvent.ENDED:
            job = replace(job, ended=moment)
        elif entry["event"] == LedgerEvent.SUBMITTED:
            job = replace(job, submitted=moment)
        jobs[latest.setdefault(name, number)] = job
    return list(jobs.values())


def _with_facts(job: Job, entry: Mapping[str, Any]) -> Job:
    numbers: dict[str, Any] = {name: _number(entry.get(name)) for name in _NUMBERS}
    if entry["event"] == LedgerEvent.ENDED:
        numbers["left"] = numbers.pop("missing")
    texts = {name: entry[name] for name in _TEXTS if isinstance(entry.get(name), (int, str))}
    code = {"code": entry["code"]} if isinstance(entry.get("code"), dict) else {}
    known = {name: value for name, value in numbers.items() if value is not None}
    return replace(job, **known, **texts, **code)


def _submission(job: Job) -> Job:
    """A job as it was submitted, whatever became of it."""
    kept = ("job", "campaign", "origin", "chain", "after", "nodes", "walltime", "memory", "submitted")
    return Job(**{name: getattr(job, name) for name in kept})


def _over(job: Job, moment: float | None) -> Job:
    return replace(job, until=moment) if job.ended is None and job.until is None else job


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return value
