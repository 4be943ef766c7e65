"""A file system that passes everything on to a folder, but for what orders make it answer.

Speaks the kernel's FUSE protocol (7.31, include/uapi/linux/fuse.h) over /dev/fuse, in one thread. Nothing is
cached by the kernel: every name and every attribute is asked for again, as on a network file system that has
lost its caches. Before it answers, each request passes a place (`fuse read`, `fuse link`, ...) with its path.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import strikes

DETACH = 2
WRITE_MOST = 1 << 17
FLOCK_LOCKS, POSIX_LOCKS, BIG_WRITES = 1 << 10, 1 << 1, 1 << 5
HEADER = struct.Struct("<IIQQIIIHH")
ATTRIBUTES = struct.Struct("<6Q10I")
SETATTR_SIZE, SETATTR_MODE, SETATTR_TIMES = 8, 1, 16 | 32 | 128 | 256

Answer = bytes | None


def mount(folder: Path) -> int:
    """Mount at a folder; returns the handle over which the kernel asks. Raises OSError where it may not."""
    handle = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={handle},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"faults", os.fsencode(folder), b"fuse.faults", 0, options):
        code = ctypes.get_errno()
        os.close(handle)
        raise OSError(code, os.strerror(code))
    return handle


def unmount(folder: Path) -> None:
    ctypes.CDLL(None).umount2(os.fsencode(folder), DETACH)


def main(source: str, target: str) -> int:
    """Serve until the file system is unmounted."""
    strikes.enlist("file-system")
    handle = mount(Path(target))
    (Path(target).parent / "mounted").touch()
    served = Passthrough(Path(source))
    while True:
        try:
            request = os.read(handle, WRITE_MOST + 4096)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                continue
            return 0  # unmounted
        served.serve(handle, request)


class Passthrough:
    """Requests by their number, each answered from the folder below."""

    def __init__(self, source: Path) -> None:
        self._paths: dict[int, Path] = {1: source}
        self._nodes: dict[Path, int] = {source: 1}
        self._open: dict[int, Any] = {}
        self._answers: dict[int, tuple[str, Callable[[Path, bytes], Answer]]] = {
            1: ("lookup", self._lookup),
            3: ("getattr", lambda path, rest: self._attributes(path)),
            4: ("setattr", self._setattr),
            9: ("mkdir", self._mkdir),
            10: ("unlink", lambda path, rest: _none(os.unlink(path / _name(rest)))),
            11: ("rmdir", lambda path, rest: _none(os.rmdir(path / _name(rest)))),
            12: ("rename", lambda path, rest: self._rename(path, rest, 8)),
            13: ("link", self._link),
            14: ("open", self._open_file),
            15: ("read", self._read),
            16: ("write", self._write),
            17: ("statfs", self._statfs),
            18: ("release", self._release),
            20: ("fsync", self._fsync),
            25: ("flush", lambda path, rest: b""),
            26: ("init", self._init),
            27: ("opendir", self._open_folder),
            28: ("readdir", self._read_folder),
            29: ("releasedir", self._release),
            30: ("fsyncdir", lambda path, rest: b""),
            32: ("lock", self._lock),
            33: ("lock", self._lock),
            35: ("create", self._create),
            45: ("rename", lambda path, rest: self._rename(path, rest, 16)),
        }

    def serve(self, handle: int, request: bytes) -> None:
        _, number, unique, node, *_ = HEADER.unpack_from(request)
        rest = request[HEADER.size :]
        if number in (2, 36, 42):  # forget, interrupt
            return
        code, answer = 0, b""
        name, function = self._answers.get(number, ("", None))
        path = self._paths.get(node, Path("/nowhere"))
        try:
            if function is None:
                raise OSError(errno.ENOSYS, "not served")
            what = path / _name(rest) if name in ("lookup", "create", "mkdir") and number != 35 else path
            if number in (12, 13, 45):
                what = self._paths[struct.unpack_from("<Q", rest)[0]] if number != 13 else path
                what = what / _names(rest, {12: 8, 13: 8, 45: 16}[number])[-1]
            if number == 35:
                what = path / _name(rest[16:])
            struck = strikes.due(f"fuse {name}", str(what))
            answer = function(path, rest) or b""
            if struck and struck.act == "zeros":
                answer = bytes(len(answer))
            if struck and struck.act == "late size":
                answer = _without_size(name, answer)
        except OSError as error:
            code, answer = -(error.errno or errno.EIO), b""
        try:
            os.write(handle, struct.pack("<IiQ", 16 + len(answer), code, unique) + answer)
        except OSError as error:
            if error.errno != errno.ENOENT:  # whoever asked is gone
                raise

    def _init(self, path: Path, rest: bytes) -> Answer:
        _, _, ahead, offered = struct.unpack_from("<IIII", rest)
        flags = offered & (FLOCK_LOCKS | POSIX_LOCKS | BIG_WRITES)
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, ahead, flags, 12, 9, WRITE_MOST, 1, 0, 0, 0)

    def _entry(self, path: Path) -> bytes:
        attributes = _attributes(os.lstat(path))
        node = self._nodes.setdefault(path, max(self._paths) + 1)
        self._paths[node] = path
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + attributes

    def _lookup(self, path: Path, rest: bytes) -> Answer:
        return self._entry(path / _name(rest))

    def _attributes(self, path: Path) -> Answer:
        return struct.pack("<QII", 0, 0, 0) + _attributes(os.lstat(path))

    def _setattr(self, path: Path, rest: bytes) -> Answer:
        valid, _, _, size, _, atime, mtime, _ = struct.unpack_from("<IIQQQQQQ", rest)
        atime_ns, mtime_ns, _, mode = struct.unpack_from("<IIII", rest, 56)
        if valid & SETATTR_SIZE:
            os.truncate(path, size)
        if valid & SETATTR_MODE:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & SETATTR_TIMES:
            now = bool(valid & (128 | 256))
            times = (atime * 10**9 + atime_ns, mtime * 10**9 + mtime_ns)
            os.utime(path) if now else os.utime(path, ns=times)
        return self._attributes(path)

    def _mkdir(self, path: Path, rest: bytes) -> Answer:
        mode, _ = struct.unpack_from("<II", rest)
        new = path / _name(rest[8:])
        os.mkdir(new, mode)
        return self._entry(new)

    def _rename(self, path: Path, rest: bytes, begin: int) -> Answer:
        folder = self._paths[struct.unpack_from("<Q", rest)[0]]
        old, new = _names(rest, begin)
        source, target = path / old, folder / new
        os.rename(source, target)
        for known, node in list(self._nodes.items()):
            if known == source or source in known.parents:
                moved = target / known.relative_to(source)
                self._nodes[moved] = self._nodes.pop(known)
                self._paths[node] = moved
        return b""

    def _link(self, path: Path, rest: bytes) -> Answer:
        new = path / _name(rest[8:])
        os.link(self._paths[struct.unpack_from("<Q", rest)[0]], new)
        return self._entry(new)

    def _opened(self, handle: Any) -> bytes:
        number = max(self._open, default=0) + 1
        self._open[number] = handle
        return struct.pack("<QII", number, 0, 0)

    def _open_file(self, path: Path, rest: bytes) -> Answer:
        return self._opened(os.open(path, struct.unpack_from("<I", rest)[0] & ~os.O_CREAT & ~os.O_EXCL))

    def _create(self, path: Path, rest: bytes) -> Answer:
        flags, mode, _, _ = struct.unpack_from("<IIII", rest)
        new = path / _name(rest[16:])
        handle = self._opened(os.open(new, flags | os.O_CREAT, stat.S_IMODE(mode)))
        return self._entry(new) + handle

    def _read(self, path: Path, rest: bytes) -> Answer:
        number, offset, size = struct.unpack_from("<QQI", rest)
        return os.pread(self._open[number], size, offset)

    def _write(self, path: Path, rest: bytes) -> Answer:
        number, offset, size = struct.unpack_from("<QQI", rest)
        return struct.pack("<II", _pwrite(self._open[number], rest[40 : 40 + size], offset), 0)

    def _release(self, path: Path, rest: bytes) -> Answer:
        handle = self._open.pop(struct.unpack_from("<Q", rest)[0])
        if isinstance(handle, int):
            os.close(handle)
        return b""

    def _fsync(self, path: Path, rest: bytes) -> Answer:
        os.fsync(self._open[struct.unpack_from("<Q", rest)[0]])
        return b""

    def _statfs(self, path: Path, rest: bytes) -> Answer:
        held = os.statvfs(path)
        counts = (held.f_blocks, held.f_bfree, held.f_bavail, held.f_files, held.f_ffree)
        return struct.pack("<5Q4I24x", *counts, held.f_bsize, held.f_namemax, held.f_frsize, 0)

    def _open_folder(self, path: Path, rest: bytes) -> Answer:
        entries = [(entry.name, entry.inode(), entry.is_dir()) for entry in os.scandir(path)]
        return self._opened(entries)

    def _read_folder(self, path: Path, rest: bytes) -> Answer:
        number, offset, size = struct.unpack_from("<QQI", rest)
        answer = b""
        for k, (name, inode, folder) in list(enumerate(self._open[number]))[offset:]:
            text = os.fsencode(name)
            entry = struct.pack("<QQII", inode, k + 1, len(text), 4 if folder else 8) + text
            entry += bytes(-len(entry) % 8)
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer

    def _lock(self, path: Path, rest: bytes) -> Answer:
        number, _, _, _, kind, _, _ = struct.unpack_from("<QQQQIII", rest)
        operation = {0: fcntl.LOCK_SH, 1: fcntl.LOCK_EX, 2: fcntl.LOCK_UN}[kind]
        fcntl.flock(self._open[number], operation | fcntl.LOCK_NB)
        return b""


def _attributes(found: os.stat_result) -> bytes:
    times = [found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns]
    whole, parts = [t // 10**9 for t in times], [t % 10**9 for t in times]
    head = (found.st_ino, found.st_size, found.st_blocks, *whole, *parts)
    return ATTRIBUTES.pack(
        *head, found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, found.st_blksize, 0
    )


def _without_size(name: str, answer: bytes) -> bytes:
    """The attributes of a file before it was written."""
    begin = {"lookup": 40 + 8, "getattr": 16 + 8}.get(name)
    return answer if begin is None else answer[:begin] + bytes(8) + answer[begin + 8 :]


def _pwrite(handle: int, content: bytes, offset: int) -> int:
    """At the end where the file was opened so, for the offset is the kernel's idea of it."""
    return os.pwrite(handle, content, offset)


def _none(value: None) -> bytes:
    return b""


def _name(rest: bytes) -> str:
    return os.fsdecode(rest.partition(b"\0")[0])


def _names(rest: bytes, begin: int) -> list[str]:
    return [os.fsdecode(name) for name in rest[begin:].rstrip(b"\0").split(b"\0")]
