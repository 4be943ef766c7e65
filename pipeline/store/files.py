"""Content digests of input files, cached by device, inode, size and time of change."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pipeline.store.plain_files import json_lines
from stages.base.atomic import replacing
from stages.base.errors import InputError

READERS = 4
BLOCK = 1 << 22
CACHE_BYTES = 4 << 20
"""Of a cache, unless those of one plan need half of what it has: about 40,000 versions of files."""
SETTLED = 2.0
"""Seconds: a file changed more recently than this may change again within one tick of its clock."""


@dataclass(frozen=True)
class FileVersion:
    """A file as it was when the plan was made; only `digest` enters keys."""

    path: str
    digest: str
    size: int
    mtime_ns: int

    def check(self) -> Path:
        """The path, if the file is still the one that was planned."""
        try:
            stat = os.stat(self.path)
        except OSError as error:
            raise InputError(
                f"{self.path}: {error.strerror}; it was there when the run was planned"
            ) from error
        if (stat.st_size, stat.st_mtime_ns) != (self.size, self.mtime_ns):
            raise InputError(f"{self.path} was changed after the run was planned: run again")
        return Path(self.path)


def file_versions(paths: Iterable[Path], cache: Path) -> dict[Path, FileVersion]:
    """Digests of files; one is read only if its size, time or inode are new, several in parallel.

    cache: one line of JSON per file version, appended. Several processes may append at once: a line is one
    write, and a line that is torn or foreign is skipped. One that has become too large is replaced by the
    versions asked for; a line that is lost is a file to read again.
    """
    known, asked = _read(cache), set[str]()

    def version(path: Path) -> FileVersion:
        try:
            stat = os.stat(path)
            asked.add(_identity(stat))
            digest = known.get(_identity(stat)) or _read_and_keep(path, stat, cache)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; a workflow reads this file") from error
        return FileVersion(str(path.resolve()), digest, stat.st_size, stat.st_mtime_ns)

    with ThreadPoolExecutor(READERS) as pool:
        wanted = list(dict.fromkeys(paths))
        versions = dict(zip(wanted, pool.map(version, wanted), strict=True))
    _shorten(cache, asked)
    return versions


def _read_and_keep(path: Path, stat: os.stat_result, cache: Path) -> str:
    digest = _digest(path)
    if _identity(os.stat(path)) != _identity(stat):
        raise InputError(f"{path} changed while it was read: wait until it is complete")
    if time.time() - stat.st_mtime_ns * 1e-9 > SETTLED:
        _append(cache, json.dumps({_identity(stat): digest}))
    return digest


def _identity(stat: os.stat_result) -> str:
    return f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"


def _digest(path: Path) -> str:
    summed = sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            summed.update(block)
    return summed.hexdigest()


def _read(cache: Path) -> dict[str, str]:
    known: dict[str, str] = {}
    with suppress(OSError, ValueError):
        for entry in json_lines(cache):
            known.update({name: digest for name, digest in entry.items() if isinstance(digest, str)})
    return known


def _shorten(cache: Path, asked: Set[str]) -> None:
    """Replace a cache that is too large by what a plan asked of it, where the store can be written."""
    with suppress(OSError):
        if (size := cache.stat().st_size) <= CACHE_BYTES:
            return
        kept = [json.dumps({name: digest}) for name, digest in _read(cache).items() if name in asked]
        if size > 2 * len(lines := "".join(f"{line}\n" for line in kept).encode()):
            with replacing(cache) as file:
                file.write(lines)


def _append(cache: Path, line: str) -> None:
    """Keep a digest if the store can be written; a store that is full or read-only works without."""
    try:
        handle = os.open(cache, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError:
        return
    try:
        with suppress(OSError):
            os.write(handle, f"\n{line}\n".encode())
    finally:
        os.close(handle)
