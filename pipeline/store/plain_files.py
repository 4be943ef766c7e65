"""Files of a store as they are read, whatever has become of them or was put in their place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from stat import S_ISREG
from typing import Any

LINE_BYTES = 16 << 20
"""Of a line, at most: no event and no entry of a ledger comes near."""

FILE_BYTES = 128 << 20
"""Of a file that is read whole, at most: a manifest has about 70 for each chunk."""

TEXT_BYTES = 4 << 20
"""Of a parameter file or a list of jobs, at most."""

_DECODER = json.JSONDecoder()


def plain(path: Path) -> Path:
    """The path of a file, to be opened: a pipe in its place would never answer.

    Raises:
        OSError: there is nothing, or it cannot be looked at.
        ValueError: what is there is no file.
    """
    if not S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is no file")
    return path


def content_of(path: Path, most: int = FILE_BYTES) -> bytes:
    """The content of a file.

    Raises:
        OSError, ValueError: as `plain` does; it has more bytes than `most`, and none is read.
    """
    if plain(path).stat().st_size > most:
        raise ValueError(f"{path} has more than {most} bytes")
    with path.open("rb") as file:
        return file.read()


def text_of(path: Path, most: int = TEXT_BYTES) -> str:
    """The text of a file; other signs for bytes that are none.

    '' where there is none that can be read, or one of more bytes than `most`.
    """
    try:
        return StringIO(content_of(path, most).decode(errors="replace"), newline=None).getvalue()
    except (OSError, ValueError):
        return ""


def json_lines(path: Path, first: int = 0) -> Iterator[dict[str, Any]]:
    """The objects in a file of JSON lines, in order, from a byte on.

    A line that was cut off, or is anything else, is skipped. Raises OSError and ValueError as `plain` does.
    """
    with plain(path).open("rb") as lines:
        lines.seek(first)
        for line in iter(partial(lines.readline, LINE_BYTES), b""):
            if (content := json_object(line)) is not None:
                yield content


def json_object(text: bytes) -> dict[str, Any] | None:
    """The object that a JSON text is; None for any other text."""
    try:
        content = _DECODER.decode(str(text, "utf-8"))
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
