"""Opening gauge-field files: one clear error for what cannot be read, slabs of what can."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from stages.base.atomic import replacing
from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.threads import in_threads

Result = TypeVar("Result")

SLAB_BYTES = 1 << 20
"""Bytes of a file that one thread holds at a time: small beside any field, large beside a system call."""


WHOLE_NUMBER = re.compile("[0-9]{1,9}")
"""A number in a header's text, such as an extent."""

FAULT_LETTERS = 220
"""Of what an error says of a file, at most: a header may state a number of a thousand digits."""

DAMAGED = "the file is damaged or mislabelled: fetch it again from its source"
"""The remedy for a file whose content cannot be what its writer wrote."""


def fault(path: Path, what: str, remedy: str) -> InputError:
    """The error for a file: its name, what is wrong with it, and what to do.

    A header's text in it neither commands a terminal nor fills it.
    """
    literal = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in what)
    if len(literal) > FAULT_LETTERS:
        literal = f"{literal[: FAULT_LETTERS // 2]} ... {literal[-FAULT_LETTERS // 2 :]}"
    return InputError(f"{path}: {literal}; {remedy}")


@contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """A file to write that becomes `path` once it is on disk; removed if the body raises.

    Raises InputError where the file cannot be written: no such folder, no permission, disk full.
    """
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        remedy = "check its folder, the permissions and the space on the disk"
        raise fault(path, f"cannot be written ({error.strerror})", remedy) from error


def warn(path: Path, notes: Iterable[str]) -> None:
    """Warn the reader of a file, in the caller's name, of what is not wrong in it but should be known."""
    for note in notes:
        warnings.warn(f"{path}: {note}", UserWarning, stacklevel=3)


def damaged(path: Path, what: str) -> InputError:
    """The error for a file whose content cannot be what its writer wrote."""
    return fault(path, what, DAMAGED)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, open for reading.

    Raises InputError if it is missing, a folder, a device, unreadable, or fails while it is read.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise fault(path, "this is a device or a pipe", "name a gauge-field file")
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise fault(path, "no such file", "check the name") from None
    except IsADirectoryError:
        raise fault(path, "this is a folder", "name a gauge-field file in it") from None
    except PermissionError:
        raise fault(path, "no permission to read it", "ask its owner, or chmod it") from None
    except OSError as error:
        if error.errno is None:  # of a library that the reader needs, not of the file
            raise
        raise fault(
            path, f"cannot be read ({error.strerror or error})", "check the disk or file system"
        ) from error


def lattice_of(path: Path, extents: tuple[int, ...]) -> Lattice:
    """The lattice with the extents (x, y, z, t) that a file's header states; InputError names the file."""
    try:
        return Lattice(extents)  # type: ignore[arg-type]
    except InputError as error:
        raise fault(path, f"unusable extents in its header: {error}", "use another configuration") from None


def expect_bytes(path: Path, lattice: Lattice, offset: int, expected: int) -> None:
    """Raise InputError unless the file ends with exactly the `expected` bytes of links from `offset` on."""
    length = path.stat().st_size - offset
    if length < expected:
        takes = f"the links of its {lattice} lattice take {expected} bytes"
        raise damaged(path, f"truncated: {takes}, the file has {max(length, 0)}")
    if length > expected:
        what = f"the links of its {lattice} lattice take {expected} bytes, but {length} follow the header"
        raise damaged(path, what)


def read_slabs(
    path: Path, offset: int, rows: int, row_bytes: int, use: Callable[[int, NDArray[np.uint8]], Result]
) -> list[Result]:
    """Call ``use(first_row, bytes [row, byte])`` for every slab of `rows` rows stored from `offset` on.

    Slabs are read and used by several threads at a time; the results come in the order of the file. Raises
    InputError if the file ends early.
    """
    step = max(1, SLAB_BYTES // row_bytes)

    def one(first: int) -> Result:
        count = min(step, rows - first) * row_bytes
        raw = os.pread(file.fileno(), count, offset + first * row_bytes)
        if len(raw) < count:
            raise damaged(
                path, f"truncated: it ends at byte {offset + first * row_bytes + len(raw)} amid its links"
            )
        return use(first, np.frombuffer(raw, np.uint8).reshape(-1, row_bytes))

    with opened(path) as file:
        return in_threads(one, range(0, rows, step))
