"""Claims of drivers that share a store: each piece of work is one driver's, until that one ends or dies.

A claim is a file `.claims/<piece>.<n>` that names a driver, made with its content by one link. One whose
driver has ended, in order or by proof of its death, is void: the next number is then free, for whoever links
it first. Claims are never removed while drivers share the store, so that no number is given twice.

They save work, they guard nothing: a chunk is published once, whoever computes it.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from itertools import count
from pathlib import Path

from pipeline.store import lease
from pipeline.store.durable import delete, write_atomically
from pipeline.store.lease import Driver, Witness, read_driver
from pipeline.store.plain_files import content_of
from pipeline.store.shelves import inside
from pipeline.store.store import Store

CLAIMS = ".claims"

KNOWN = 5.0
"""Seconds for which what is known of another driver holds."""

NOBODY = "-"
"""What a claim says that its driver gave back."""

_RUN = re.compile(r"[\w-][\w.-]{0,199}")

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)


class Claims:
    """Claims of one driver.

    Args:
        store: that drivers share.
        run: of this driver.
        drivers: folder with the leases of all drivers, by run.
        witness: asked about the jobs of drivers that ran elsewhere.
    """

    def __init__(self, store: Store, run: str, drivers: Path, witness: Witness) -> None:
        self._run, self._drivers, self._witness = run, drivers, witness
        self._folder = store.inside(CLAIMS)
        self._draft = self._folder / f".{run}"
        self._writing = store.writing
        self._mine: dict[str, Path] = {}
        self._known: dict[str, tuple[float, bool]] = {}
        with store.writing("its claims"):
            self._folder.mkdir(exist_ok=True)
            write_atomically(self._draft, run)

    def has(self, piece: str) -> bool:
        """True if this driver claimed a piece."""
        return piece in self._mine

    def take(self, pieces: Iterable[str]) -> bool:
        """Claim all pieces; False, and none is, if another driver has one that is not known to be dead."""
        taken: list[str] = []
        with self._writing("a claim"):
            for piece in sorted(pieces):
                if piece in self._mine:
                    continue
                if not self._take(piece):
                    for each in taken:
                        self._give_back(self._mine.pop(each))
                    return False
                taken.append(piece)
        return True

    def others(self) -> list[Driver]:
        """The other drivers that share the store now."""
        runs = [path for path in sorted(self._drivers.glob("*")) if path.name[0] != "."]
        drivers = [read_driver(path) for path in runs if path.name != self._run and self._lives(path.name)]
        return [driver for driver in drivers if driver]

    def close(self) -> None:
        """Remove what claims are made of; they are void once this driver's lease is gone."""
        delete(self._draft)

    def _take(self, piece: str) -> bool:
        name = sha256(piece.encode()).hexdigest()[:32]
        for number in count():
            path = self._folder / f"{name}.{number}"
            if self._made(path):
                self._mine[piece] = path
                return True
            if self._counts(path):
                return False
        raise AssertionError  # numbers do not end

    def _counts(self, path: Path) -> bool:
        """True if a claim is of a driver that is at work."""
        try:
            run = content_of(inside(self._folder, path.name)).decode(errors="replace")
        except ValueError:  # no file: nobody's
            return False
        if run == NOBODY or (run and not _RUN.fullmatch(run)):  # a path would lead to another file
            return False
        if run:
            return self._lives(run)
        return lease.age(path, path.stat()) < lease.STALE  # being written, where there are no links

    def _lives(self, run: str) -> bool:
        """True if a driver has not ended and is not known to be dead; that is asked once in a while."""
        asked, lives = self._known.get(run, (-KNOWN, True))
        if time.monotonic() - asked >= KNOWN:
            lives = run == self._run or self._is_alive(self._drivers / run)
            self._known[run] = (time.monotonic(), lives)
        return lives

    def _is_alive(self, path: Path) -> bool:
        if not path.exists():
            return False
        try:
            lease.clear(path, self._witness, patience=0.0)
        except lease.HeldError:
            return True
        return False

    def _made(self, path: Path) -> bool:
        """Make a file with this run's name; False if there is one."""
        try:
            os.link(self._draft, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno == errno.EMLINK:
                write_atomically(self._draft, self._run)
                return self._made(path)
            if error.errno not in _NO_LINKS:
                raise
            return _written(path, self._run)
        return True

    def _give_back(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            write_atomically(path, NOBODY)


def remove_claims(store: Store, run: str) -> None:
    """Remove all claims. Only for the driver of that run, while no other one begins or has work."""
    for path in store.inside(CLAIMS).glob("*"):
        if path.name != f".{run}":
            delete(path)


def _written(path: Path, text: str) -> bool:
    """Make a file where there are no links; False if there is one."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    os.write(handle, text.encode())
    os.close(handle)
    return True
