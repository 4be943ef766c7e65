"""Faults that are of the machine, or of a name that is no text, and end a command.

Each is told in a sentence that names the path and the remedy. Everything else is an error in quarkline, and
shows its traceback.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import (
    EACCES,
    EAGAIN,
    EDQUOT,
    EFBIG,
    EIO,
    ELOOP,
    EMFILE,
    ENAMETOOLONG,
    ENFILE,
    ENOMEM,
    ENOSPC,
    ENOTDIR,
    EPERM,
    EROFS,
    ESTALE,
)
from traceback import walk_tb

FORBIDDEN = "ask its owner for permission (ls -ld shows who that is), or choose another place"
FULL = "make room there, or choose another place"
FAILING = "the disk or file system fails: see `dmesg`, or ask who runs it"
MEMORY = "free some, or raise the limit (ulimit -v; --mem of a batch job)"
FILES = "raise the limit of open files (ulimit -n 4096)"
REMEDIES = {
    **dict.fromkeys((EACCES, EPERM), FORBIDDEN),
    **dict.fromkeys((ENOSPC, EDQUOT), FULL),
    **dict.fromkeys((EIO, ESTALE), FAILING),
    **dict.fromkeys((EMFILE, ENFILE), FILES),
    EROFS: "the file system is read-only: choose another place",
    EFBIG: "raise the limit of a file's size (ulimit -f)",
    ENAMETOOLONG: "a name has 255 bytes at most, a path 4095: choose a shorter one",
    ENOTDIR: "a part of this path is a file and no folder: check the path",
    ELOOP: "links on this path point to each other: remove one",
    ENOMEM: MEMORY,
    EAGAIN: "raise the limit of processes (ulimit -u)",
}
"""What to do about an error of the operating system, by its number."""

RUNNING = {
    "can't start new thread": f"no thread can be started: {REMEDIES[EAGAIN]}",
    "no locator available": "Numba has no folder for compiled kernels: set NUMBA_CACHE_DIR to one that can "
    "be written",
}
"""What a RuntimeError with such words says."""

UNMAPPED = ("failed to map", "cannot allocate memory")
"""Words of the system's linker on a library that found no room."""

UNPARSED = "Environment variable 'NUMBA_[A-Z_]+' is defined but its associated value"
"""What Numba warns of, with a traceback, before it takes its default."""

OF_CUPY = "CuPy keeps compiled kernels there: set CUPY_CACHE_DIR to a folder that can be written"


def guarded(command: Callable[[], int]) -> int:
    """Exit code of a command: 1, and a sentence on standard error, where the machine ended it."""
    _open_streams()
    try:
        os.getcwd()
    except OSError as error:
        _tell(f"the working folder is gone or cannot be read ({error.strerror}): change to another one (cd)")
        return 2
    warnings.filterwarnings("error", UNPARSED, RuntimeWarning)
    try:
        return command()
    except Exception as error:
        if not (text := machine_fault(error)):
            raise
        _tell(text)
        return 1


def machine_fault(error: BaseException) -> str:
    """A sentence on a fault of the machine, or a name that is no text; '' for any other error."""
    if (found := _of_memory(error)) is not None:
        return f"there is too little memory{f' ({found})' if found else ''}: {MEMORY}"
    if isinstance(error, UnicodeEncodeError):
        return _of_text(error)
    if isinstance(error, RuntimeError):
        return next((told for words, told in RUNNING.items() if words in str(error)), "")
    if isinstance(error, RuntimeWarning) and re.match(UNPARSED, str(error)):
        return f"{str(error).splitlines()[0]} Set it to a number, or unset it"
    if isinstance(error, ValueError) and "Number of threads specified must be > 0" in str(error):
        number = os.environ.get("NUMBA_NUM_THREADS")
        return f"NUMBA_NUM_THREADS={number} leaves no thread: set it to 1 or more, or unset it"
    if not isinstance(error, OSError):
        return ""
    *_, raised_in = through = [name.split(".")[0] for name in _modules(error)] or [""]
    if error.filename is None and raised_in in ("typer", "rich"):  # which print the help
        from workflows.terminal import lost_stream

        return lost_stream(error)
    remedy = OF_CUPY if "cupy" in through else REMEDIES.get(error.errno or 0, "")
    where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""
    return f"{f'{where}: ' if where else ''}{error.strerror}; {remedy}" if remedy else ""


def _of_memory(error: BaseException | None) -> str | None:
    """What an error says of memory, on one line; None for an error of anything else.

    A library that found no room when it was loaded ends in a page of NumPy's, or in the cause of another one.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    if isinstance(error, MemoryError):
        return next(filter(None, lines), "")
    if not isinstance(error, ImportError | OSError):
        return None
    found = next((line for line in lines if any(words in line for words in UNMAPPED)), None)
    return found or _of_memory(error.__cause__ or error.__context__)


def _of_text(error: UnicodeEncodeError) -> str:
    """A name that is no UTF-8, or a terminal that has not all letters."""
    letters = error.object[error.start : error.end]
    if any("\ud800" <= letter <= "\udfff" for letter in letters):
        near = ascii(error.object[max(0, error.start - 40) : error.end + 20])
        return f"a name is no UTF-8, near {near}: rename the file or folder"
    return f"the terminal's encoding {error.encoding} lacks {letters!a}: set PYTHONUTF8=1"


def _modules(error: BaseException) -> Iterator[str]:
    """Names of the modules that an error went through."""
    return (str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(error.__traceback__))


def _open_streams() -> None:
    """Standard streams that are closed lead to /dev/null: no file that is opened later takes their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _tell(text: str) -> None:
    with suppress(OSError):
        print(f"error: {text}".encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)
