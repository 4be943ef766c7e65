"""Faults that strike a process from inside, at a named place of its work, as orders in a folder say.

Processes under fault import this module. Whenever one passes a place (in a stage, halfway through a draft,
before a flush, before and after the publication of a chunk, at a read), it looks for an order for that place
and carries it out: kills or stops itself or another process, raises an error of the operating system, or
waits until the suite has done what it does from outside. Each strike is one line in `strikes.jsonl`.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = "QUARKLINE_FAULT_ORDERS"

WAIT = 30.0
"""Seconds that a process waits for the suite's leave to go on."""

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "end": signal.SIGTERM, "hang": signal.SIGHUP}

_guard = threading.local()
_role = "worker"


@dataclass(frozen=True)
class Order:
    """What is to strike where.

    Args:
        name: of the order, unique in its folder.
        kind: of the fault, in the table of outcomes.
        act: 'kill', 'stop', 'end' (SIGTERM), 'hang' (SIGHUP), 'error' or 'wait'; others are for who passes.
        place: where it strikes: 'start', 'compute', 'draft', 'write', 'flush', 'commit', 'published', 'read',
            'notes' (the driver's own files), 'lock' or 'end'.
        store: path of the store whose work is struck.
        target: role of the process that is killed or stopped, 'self' is the one that passes.
        after: passages that are let through before.
        times: passages that are struck, -1 all later ones.
        match: part of what passes (the path, or the stage and its coordinates).
        code: number of the operating system's error.
    """

    name: str
    kind: str
    act: str
    place: str
    store: str
    target: str = "self"
    after: int = 0
    times: int = 1
    match: str = ""
    code: int = 0

    def give(self, folder: Path) -> None:
        """Make the order known, all at once."""
        draft = folder / f"{self.name}.draft"
        draft.write_text(json.dumps(asdict(self)))
        draft.rename(folder / f"{self.name}.order")


def enlist(role: str, folder: str | None = None) -> None:
    """Note that this process is a driver, a scheduler, a nanny or a worker."""
    global _role
    _role = role
    if found := folder or os.environ.get(FOLDER):
        (Path(found) / f"{role}-{os.getpid()}.pid").touch()


def enlisted(folder: Path, role: str) -> list[int]:
    """Living processes of a role."""
    pids = [int(path.stem.rpartition("-")[2]) for path in folder.glob(f"{role}-*.pid")]
    return sorted(pid for pid in pids if _lives(pid))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pid: int) -> None:
    """End a process at once, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def committed(store: str) -> list[str]:
    """Files and folders of the chunks of a store, by their names alone."""
    shelves = Path(store).glob("[a-z]*/[0-9a-f][0-9a-f][0-9a-f]")
    return sorted(path.name for shelf in shelves for path in shelf.iterdir())


def passing(place: str, what: str) -> None:
    """Pass a place: whatever is ordered for it strikes."""
    if _role != "file-system":
        due(place, what)


def due(place: str, what: str) -> Order | None:
    """Carry out the orders for a place; the last one of them is returned."""
    folder, struck = os.environ.get(FOLDER), None
    if not folder or getattr(_guard, "on", False):
        return None
    _guard.on = True
    try:
        for path in sorted(Path(folder).glob("*.order")):
            try:
                order = Order(**json.loads(path.read_text()))
            except FileNotFoundError:  # withdrawn in this instant
                continue
            if order.place == place and order.match in what and _is_due(Path(folder), order):
                _strike(Path(folder), order, what)
                struck = order
    finally:
        _guard.on = False
    return struck


def _is_due(folder: Path, order: Order) -> bool:
    """Take the next number of this order; no two passages get the same."""
    number = 0
    while True:
        try:
            os.close(os.open(folder / f"{order.name}.{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            number += 1
            continue
        return order.after <= number and (order.times < 0 or number < order.after + order.times)


def _strike(folder: Path, order: Order, what: str) -> None:
    targets = [os.getpid()] if order.target in ("self", _role) else enlisted(folder, order.target)[:1]
    if not targets:
        return
    about = {"what": what, "role": _role, "pid": os.getpid(), "target": targets[0], "time": time.time()}
    line = {**asdict(order), **about, "committed": committed(order.store)}
    handle = os.open(folder / "strikes.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (json.dumps(line) + "\n").encode())
    os.close(handle)
    if order.act == "error":
        raise OSError(order.code, os.strerror(order.code), what)
    if order.act == "wait":
        _wait(folder / f"{order.name}.go")
    elif order.act in _SIGNALS:
        os.kill(targets[0], _SIGNALS[order.act])


def _wait(leave: Path) -> None:
    deadline = time.monotonic() + WAIT
    while not leave.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def install() -> None:
    """Watch this process's opens, renames, links, locks and flushes from now on."""
    sys.addaudithook(_on_event)
    if multiprocessing.parent_process() is not None:
        enlist("worker")
        faulthandler.register(signal.SIGUSR1)
    flush, write = os.fsync, Path.write_bytes

    def flushing(handle: int) -> None:
        path = _path_of(handle)
        if "/.tmp/" in path:
            passing("flush", path)
        elif re.fullmatch(r"[0-9a-f]{3}", os.path.basename(path)):
            passing("published", path)
        flush(handle)

    def writing(path: Path, content: bytes) -> int:
        if "/.tmp/" not in str(path):
            return write(path, content)
        with open(path, "wb") as file:
            half = len(content) // 2
            file.write(content[:half])
            file.flush()
            passing("write", str(path))
            return half + file.write(content[half:])

    os.fsync = flushing
    Path.write_bytes = writing  # type: ignore[method-assign, assignment]


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    handle = _EVENTS.get(event)
    if handle and not getattr(_guard, "on", False) and FOLDER in os.environ:
        handle(*arguments)


def _opened(path: Any, mode: Any, flags: int) -> None:
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    writing = bool(flags & (os.O_WRONLY | os.O_RDWR))
    if writing and "/.tmp/" in text:
        passing("draft", text)
    elif writing and _is_bookkeeping(text):
        passing("notes", text)
    elif not writing and _is_of_a_chunk(text):
        passing("read", text)


def _moved(source: Any, target: Any, *_: Any) -> None:
    if "/.tmp/" in os.fsdecode(source) and _is_of_a_chunk(os.fsdecode(target)):
        passing("commit", os.fsdecode(target))
    elif _is_bookkeeping(os.fsdecode(target)):
        passing("notes", os.fsdecode(target))


def _locked(handle: Any, operation: int) -> None:
    number = handle if isinstance(handle, int) else handle.fileno()
    passing("lock", _path_of(number))


def _path_of(handle: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return ""


def _is_of_a_chunk(path: str) -> bool:
    return bool(re.search(r"/[0-9a-f]{3}/[0-9a-f]{64}", path))


def _is_bookkeeping(path: str) -> bool:
    return bool(re.search(r"/faultstore/(\.runs|\.workflows|\.lease|\.quarkline|quarkline)", path))


_EVENTS: dict[str, Callable[..., None]] = {
    "open": _opened,
    "os.rename": _moved,
    "os.link": _moved,
    "fcntl.flock": _locked,
}
