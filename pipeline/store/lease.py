"""Drivers of a store, and the leases by which they are known.

A lease is a file that names a driver, made with O_EXCL, whose time its holder renews all the while. `flock`
is gone with its process, but some file systems do not have it, and on some it holds on one node alone; a
lease holds everywhere. Times that are compared are of the file system's own clock. A lease counts for nothing
once its holder is dead on this very machine, or its batch system says that its job has ended; of a holder
that is in no job, once nobody renewed it for `STALE` seconds.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipeline.batch import KINDS, State, batch_system, own_job
from pipeline.store.durable import is_at
from pipeline.store.plain_files import content_of, json_object
from pipeline.store.typed import field_types, known_and_other

BEAT = 5.0
"""Seconds between two signs of life of a lease's holder."""

LEASE_BYTES = 1 << 20

STALE = 60.0
"""Seconds without one after which the lease of a holder that is in no job counts for nothing."""


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


_TYPES = field_types(Driver)

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
        known, _ = known_and_other(json_object(content_of(path, LEASE_BYTES)) or {}, _TYPES)
        driver = Driver(**known)
        return driver if 0 < driver.pid < 1 << 31 else None
    except (OSError, ValueError, TypeError):
        return None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class HeldError(Exception):
    """Error of who wants a lease that another driver holds; `holder` is None where it cannot be read."""

    def __init__(self, holder: Driver | None) -> None:
        super().__init__()
        self.holder = holder


@contextmanager
def held(path: Path, driver: Driver, witness: Witness) -> Iterator[None]:
    """Hold the lease while the block runs; waits up to `STALE` seconds for one that nobody renews.

    Raises:
        HeldError: another driver has it.
        OSError: it cannot be written.
    """
    handle = _acquire(path, driver, witness)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(path, handle, ended), daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        if is_at(handle, path):
            with suppress(OSError):
                path.unlink()
        os.close(handle)


def clear(path: Path, witness: Witness, patience: float | None = None) -> None:
    """Remove a lease that counts for nothing, after watching it as long as that takes.

    patience: seconds that it may take to see that nobody renews it, `STALE` by default.

    Raises:
        HeldError: it counts.
    """
    try:
        seen, holder = path.stat(), read_driver(path)
        if not is_over(holder, witness):
            if holder and holder.job and not holder.is_here:
                raise HeldError(holder)  # its batch system has the word, not its age
            here = holder is not None and holder.is_here
            _watch(path, seen, 0.0 if here else STALE if patience is None else patience)
        grave = path.with_name(f".lease-{uuid.uuid4().hex[:8]}")
        os.rename(path, grave)
        if not os.path.samestat(grave.stat(), seen):  # somebody was faster, and holds it now
            with suppress(OSError):
                os.link(grave, path)
            grave.unlink()
            raise HeldError(read_driver(path))
        grave.unlink()
    except FileNotFoundError:
        return


def is_over(holder: Driver | None, witness: Witness) -> bool:
    """True if a driver is proven dead."""
    if holder is None:
        return False
    return holder.is_dead or (bool(holder.job) and witness(holder) is True)


def _acquire(path: Path, driver: Driver, witness: Witness) -> int:
    """An open lease file that is this driver's."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            clear(path, witness)
            continue
        with suppress(OSError):  # a name for others to read; garbage is collected on a full disk too
            os.pwrite(handle, json.dumps(asdict(driver)).encode(), 0)
        return handle


def _watch(path: Path, seen: os.stat_result, patience: float) -> None:
    """Wait until a lease is stale; HeldError as soon as it is renewed, or where that takes too long."""
    silent = age(path, seen)
    if STALE - silent > patience + BEAT:
        raise HeldError(read_driver(path))
    deadline = time.monotonic() + STALE - max(0.0, silent)
    while time.monotonic() < deadline:
        time.sleep(min(BEAT, max(0.01, deadline - time.monotonic())))
        if path.stat().st_mtime_ns != seen.st_mtime_ns:
            raise HeldError(read_driver(path))


def age(path: Path, seen: os.stat_result) -> float:
    """Seconds since a file was changed, by its file system's clock."""
    return _now(path.parent) - seen.st_mtime


def clock(folder: Path) -> float:
    """Time by a file system's clock, asked once a minute; this machine's where nothing can be written.

    For looking on, often: `age` asks each time.
    """
    asked, ahead = _ahead.get(folder, (-STALE, 0.0))
    if time.monotonic() - asked >= STALE:
        try:
            ahead = _now(folder) - time.monotonic()
        except OSError:
            ahead = time.time() - time.monotonic()
        _ahead[folder] = (time.monotonic(), ahead)
    return time.monotonic() + ahead


_ahead: dict[Path, tuple[float, float]] = {}
"""By folder: when its file system's clock was asked, and what that is ahead of `time.monotonic`."""


def _now(folder: Path) -> float:
    """Time by a file system's clock: that of a file that is made."""
    probe = folder / f".lease-{uuid.uuid4().hex[:8]}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink()


def _beat(path: Path, handle: int, ended: threading.Event) -> None:
    """Renew the lease while it is this process's."""
    while not ended.wait(BEAT):
        with suppress(OSError):
            if not is_at(handle, path):
                return
            os.utime(handle)
