"""Processes that drive a store: who they are, and whether they are known to be dead."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from pipeline.batch import KINDS, State, batch_system, own_job
from pipeline.store.plain_files import json_object, plain


@dataclass(frozen=True)
class Driver:
    """A process that drives a store."""

    host: str
    pid: int
    run: str
    boot: str = ""
    """Id of the machine's start, '' if it has none."""
    system: str = ""
    """Batch system of its job, '' outside of one."""
    job: str = ""
    restart: int = 0
    """Times that its job was put back into the queue before."""
    code: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Digests of its packages, by name; of those that share the store only."""

    def __str__(self) -> str:
        of = f", job {self.job}" if self.job else ""
        return f"run {self.run} (process {self.pid} on {self.host}{of})"

    @property
    def is_here(self) -> bool:
        """True if it ran on this machine, as it was booted."""
        return (self.host, self.boot) == (socket.gethostname(), _boot())

    @property
    def is_dead(self) -> bool:
        """True if it ran on this machine and does not any more, or in an earlier life of this very job."""
        if self.job and (self.system, self.job) == (own := own_job())[:2] and self.restart < own[2]:
            return True
        if not self.is_here:
            return False
        with suppress(OSError):
            if Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True  # it ended, and its parent did not ask for its status yet
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


Witness = Callable[[Driver], bool | None]
"""Tells whether the job of a driver has ended, by the word of its batch system; None: it does not answer."""


def no_witness(driver: Driver) -> None:
    """No batch system is asked."""


def job_has_ended(driver: Driver) -> bool | None:
    """True if its batch system says so; None if that does not answer, is not here or not known here."""
    if driver.system not in KINDS:
        return None
    state = batch_system(driver.system).state(driver.job)
    return None if state == State.UNKNOWN else state == State.ENDED


def this_driver(run: str, code: Mapping[str, str] | None = None) -> Driver:
    """This process as the driver of a run; code: digests of its packages, by name."""
    return Driver(socket.gethostname(), os.getpid(), run, _boot(), *own_job(), code=dict(code or {}))


def other_code(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Packages whose digests differ, with the beginning of both; '' where none does that both have."""
    differing = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
    return ", ".join(f"{name} {before[name][:12]} there, {now[name][:12]} here" for name in differing)


def read_driver(path: Path) -> Driver | None:
    """The driver that a file names; None where it is none, or is being written."""
    try:
        written = json_object(plain(path).read_bytes()) or {}
        return Driver(**{each.name: written[each.name] for each in fields(Driver) if each.name in written})
    except (OSError, ValueError, TypeError):
        return None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
