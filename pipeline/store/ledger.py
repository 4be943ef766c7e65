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
from pipeline.store.typed import field_types, known_and_other
from stages.base.errors import InputError

FORMAT = 1

ORIGIN = "from"
"""Name under which an entry says which store it was brought from."""


class LedgerEvent(StrEnum):
    """Kinds of entries."""

    SUBMITTED = "submitted"
    BEGAN = "began"
    ENDED = "ended"
    BUDGET = "budget"
    STOPPED = "stopped"
    """The campaign submits no further jobs."""


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """An entry of a ledger; None, or empty, is what it does not say, or nobody can tell."""

    event: str
    """`LedgerEvent`, or one of another version."""
    time: float | None = None
    """Seconds since 1970."""
    campaign: str = ""
    job: str = ""
    """Id in the batch system."""
    origin: str = ""
    """The store that it was brought from; '' for one of this store."""
    chain: int | str | None = None
    """Of a stop, None is all chains."""
    after: str | None = None
    """Job that this one waits for."""
    name: str = ""
    host: str = ""
    nodes: int | None = None
    walltime: float | None = None
    """Seconds."""
    memory: float | None = None
    """Bytes of a node."""
    missing: int | None = None
    """Chunks of the plan that are not committed, at this time."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Digests of the packages of a job, by name."""
    upgrade: str = ""
    """Packages of other code than the last job's before it, with both digests."""
    seconds: float | None = None
    node_seconds: float | None = None
    joules: float | None = None
    """Energy of a job, or that a campaign may take; None: nothing measures it, or no limit."""
    commits: int | None = None
    reason: str = ""
    node_hours: float | None = None
    """Node-hours that a campaign may take; None: no limit."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """What this version does not know, or is of no use."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> LedgerEntry:
        """The entry that a line of the file is."""
        usable = {name: value for name, value in content.items() if not _is_odd(value)}
        known, more = known_and_other(usable, _TYPES)
        names = {name: str(content.get(name, "")) for name in ("event", "job", "campaign")}
        return cls(**{**known, **names}, origin=str(content.get(ORIGIN, "")), more=more)

    def as_dict(self) -> dict[str, Any]:
        """The entry as it is written."""
        own = {name: getattr(self, name) for name in ("time", "campaign", *_WRITTEN[self.event])}
        return {"format": FORMAT, "event": str(self.event), **own}


_TYPES = field_types(LedgerEntry, "origin", "more")
_WRITTEN: dict[str, tuple[str, ...]] = {
    LedgerEvent.SUBMITTED: ("job", "chain", "after", "name", "nodes", "walltime", "memory"),
    LedgerEvent.BEGAN: ("job", "chain", "host", "nodes", "walltime", "missing", "code", "upgrade"),
    LedgerEvent.ENDED: ("job", "chain", "seconds", "node_seconds", "joules", "commits", "missing", "reason"),
    LedgerEvent.BUDGET: ("node_hours", "joules"),
    LedgerEvent.STOPPED: ("chain", "reason"),
}
"""What entries hold beside time and campaign."""


def _is_odd(value: object) -> bool:
    """True for what is no figure that counts: in JSON of Python also NaN and infinity are numbers."""
    return isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value))


@dataclass(frozen=True)
class Ledger:
    """Entries of a store, oldest first."""

    store: Store

    @property
    def path(self) -> Path:
        """The file; absent before the first entry."""
        return self.store.inside(".ledger.jsonl")

    def add(self, event: LedgerEvent, **facts: Any) -> None:
        """Append an entry, durably. Raises StoreError where it cannot be written."""
        self.bring(LedgerEntry(event=event, time=time.time(), **facts).as_dict())

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

    def contents(self) -> Iterator[dict[str, Any]]:
        """All entries that are whole, as they are. Raises InputError where the file cannot be read."""
        try:
            yield from (entry for entry in json_lines(self.path) if "event" in entry)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise InputError(
                f"the ledger {self.path} cannot be read ({error}): mend it, or move it away"
            ) from error

    def entries(self) -> Iterator[LedgerEntry]:
        """Entries as far as this version knows them. Raises InputError as above."""
        return map(LedgerEntry.of, self.contents())

    def state(self) -> LedgerState:
        """Jobs, budgets and stops by all entries. Raises InputError as above."""
        return LedgerState.of(self.entries())


@dataclass(frozen=True, kw_only=True)
class Job(LedgerEntry):
    """A job by its entries: from its submission to its end, or from one of several beginnings to the next.

    A job that is put back into the queue begins again. Times are seconds since 1970.
    """

    submitted: float | None = None
    began: float | None = None
    ended: float | None = None
    until: float | None = None
    """Time at which it was over for certain, without an entry: it began again, or its successor began."""
    left: int | None = None
    """Chunks that were missing when it ended; `missing` are those when it began."""

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
        return (self.nodes or 1) * max(0.0, min(now, walltime, until) - self.began)


@dataclass(frozen=True)
class LedgerState:
    """The ledger of a store: its jobs and those of merged stores, its own budgets and stops.

    jobs: in the order in which they began, or were submitted where they have not begun. budgets: the last of
    each campaign by name, oldest first. stops: as they were written.
    """

    jobs: tuple[Job, ...] = ()
    budgets: Mapping[str, LedgerEntry] = field(default_factory=dict)
    stops: tuple[LedgerEntry, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[LedgerEntry]) -> LedgerState:
        """The state by entries, oldest first."""
        entries = list(entries)
        own = [entry for entry in entries if not entry.origin]
        budgets: dict[str, LedgerEntry] = {}
        for entry in own:
            if entry.event == LedgerEvent.BUDGET:
                budgets.pop(entry.campaign, None)
                budgets[entry.campaign] = entry
        stops = (entry for entry in own if entry.event == LedgerEvent.STOPPED and "chain" not in entry.more)
        return cls(tuple(_jobs(entries)), budgets, tuple(stops))

    @property
    def last_budget(self) -> LedgerEntry | None:
        """Budget of the campaign that was submitted last."""
        return next(reversed([*self.budgets.values()]), None)

    @property
    def last_campaign(self) -> LedgerState:
        """The part of the campaign that was submitted last; of all where none has a budget."""
        return self.of_campaign(self.last_budget.campaign if self.last_budget else None)

    def of_campaign(self, campaign: str | None = None) -> LedgerState:
        """The part of one campaign of this store; None: of all, without merged stores."""
        names = {campaign} if campaign else {"", *(each.campaign for each in (*self.jobs, *self.stops))}
        return LedgerState(
            tuple(job for job in self.jobs if not job.origin and job.campaign in names),
            {name: budget for name, budget in self.budgets.items() if name in names},
            tuple(stop for stop in self.stops if stop.campaign in names),
        )

    def node_seconds(self, now: float) -> float:
        """Cost of the jobs that began."""
        return sum(job.charged(now) for job in self.jobs)

    @property
    def joules(self) -> float | None:
        """Energy of the jobs, as far as that was measured; None where nothing was."""
        measured = [job.joules for job in self.jobs if job.joules is not None]
        return sum(measured) if measured else None


_OF_JOBS = (LedgerEvent.SUBMITTED, LedgerEvent.BEGAN, LedgerEvent.ENDED)
_FACTS = (
    "chain", "after", "nodes", "walltime", "memory", "missing", "code", "upgrade", "seconds", "node_seconds",
    "joules", "commits", "reason",
)  # fmt: skip
_OF_SUBMISSION = ("job", "campaign", "origin", "chain", "after", "nodes", "walltime", "memory", "submitted")


def _jobs(entries: Iterable[LedgerEntry]) -> Iterable[Job]:
    jobs: dict[int, Job] = {}
    latest: dict[tuple[str, str, str], int] = {}
    for number, entry in enumerate(entries):
        if not entry.job or entry.event not in _OF_JOBS:
            continue
        name = entry.job, entry.campaign, entry.origin
        before = jobs.get(latest.get(name, -1))
        new = Job(event=entry.event, job=entry.job, campaign=entry.campaign, origin=entry.origin)
        job = _with_facts(before or new, entry)
        if entry.event == LedgerEvent.BEGAN:
            if before and before.began is None:
                del jobs[latest[name]]
            elif before:
                jobs[latest[name]] = _over(before, entry.time)
            waited = latest.get((str(job.after), entry.campaign, entry.origin), -1)
            if waited in jobs:
                jobs[waited] = _over(jobs[waited], entry.time)
            latest[name] = number
            submission = Job(event=entry.event, **{each: getattr(job, each) for each in _OF_SUBMISSION})
            job = replace(_with_facts(submission, entry), began=entry.time)
        elif entry.event == LedgerEvent.ENDED:
            job = replace(job, ended=entry.time)
        else:
            job = replace(job, submitted=entry.time)
        jobs[latest.setdefault(name, number)] = job
    return jobs.values()


def _with_facts(job: Job, entry: LedgerEntry) -> Job:
    facts = {name: value for name in _FACTS if (value := getattr(entry, name)) not in (None, "", {})}
    if entry.event == LedgerEvent.ENDED and "missing" in facts:
        facts["left"] = facts.pop("missing")
    return replace(job, **facts)


def _over(job: Job, moment: float | None) -> Job:
    """A job that does not compute any more, if that is not known already."""
    return replace(job, until=moment) if job.ended is None and job.until is None else job
