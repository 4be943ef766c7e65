"""The file that makes a folder a store, and says in which format."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.store.durable import write_atomically
from pipeline.store.plain_files import content_of
from pipeline.store.shelves import inside
from stages.base.errors import InputError

FORMAT = 2
READABLE = (1, 2)
MARK = "quarkline.json"

_BEGUN = {".tmp", ".runs", ".workflows"}
"""Folders that a store has before it has its mark, if the process ended that was making it."""

TEXT = json.dumps({"format": FORMAT})
"""Content of the mark."""


def format_of(store: Path) -> int | None:
    """The format of the store in a folder; None where a new one may be made.

    Raises:
        InputError: the folder is no store, cannot be read, or is a store of a format unknown here.
    """
    if (text := _text(store)) is None and store.is_dir():
        foreign = not all(_is_begun(item.name) for item in store.iterdir())
        text = _text(store)  # another process may have made it just then
        if foreign and text is None:
            raise InputError(f"{store} is a folder, but not a quarkline store: choose another")
    return None if text is None else format_in(text, str(store))


def _text(store: Path) -> str | None:
    """Content of a store's mark, None where there is none."""
    try:
        return content_of(inside(store, MARK)).decode(errors="replace")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or str(error)
        remedy = f": put a file with {TEXT} in its place" if what.endswith("is no file") else ""
        if isinstance(error, NotADirectoryError):
            remedy = ": a store is a folder, and this path is that of a file or goes through one"
        raise InputError(f"store {store} cannot be read: {what}{remedy}") from error


def format_in(text: str, store: str) -> int:
    """The format that the mark of a store names.

    Raises:
        InputError: it is damaged, or of a format unknown here.
    """
    try:
        written = json.loads(text)["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"store {store}: {MARK} is damaged; it should say {TEXT}") from error
    if type(written) is not int or written not in READABLE:
        raise InputError(
            f"store {store} has format {written!r:.40}, this version of quarkline reads 1 and {FORMAT} "
            "and writes the latter: use the version that wrote it, or another store"
        )
    return int(written)


def _is_begun(name: str) -> bool:
    return name in _BEGUN or name.startswith(f".{MARK}.")


def mark(store: Path) -> None:
    """Make a folder a store of this format. Older versions then refuse it, instead of computing all again."""
    write_atomically(store / MARK, TEXT)
