"""Names and places of chunks in a store's folder: what lies there, found by listing.

Below `<store>/<stage>/<first three digits of the key>/`, a chunk is a file `<key>.zarr.zip` or a folder
`<key>/`. Format 1 kept every chunk as a folder `<store>/<stage>/<key>/`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from pipeline.store.errors import StoreError
from pipeline.store.plain_files import content_of, plain
from pipeline.store.record import RECORD_BYTES, Facts
from stages.base.errors import InputError

PACKED = ".zarr.zip"

ALL_READ = "a store reads all its folders"

ChunkId = tuple[str, str]
"""Stage and key."""

_KEY = re.compile(r"[0-9a-f]{64}")
_SHELF = re.compile(r"[0-9a-f]{3}")
_CHUNK = re.compile(rf"([0-9a-f]{{64}})(?:{re.escape(PACKED)})?")


_PLACE = re.compile(
    rf"(?P<place>(?P<stage>[^/.][^/]*)/(?:[0-9a-f]{{3}}/)?(?P<key>[0-9a-f]{{64}})({re.escape(PACKED)})?)(/.+)?"
)


def chunk_in(path: str) -> tuple[str, str, str] | None:
    """Stage, key and place of the chunk that a file belongs to, by its path below a store's folder.

    None for any other file.
    """
    match = _PLACE.fullmatch(path)
    return (match["stage"], match["key"], match["place"]) if match else None


def shelf_of(stage: Path, key: str) -> Path:
    """The folder inside a stage's that holds a chunk."""
    return stage / key[:3]


def place_of(stage: Path, key: str) -> Path:
    """The file or folder of a chunk in a stage's folder; where there is none, the file of a small one."""
    shelf = shelf_of(stage, key)
    for path in (shelf / key, stage / key):
        if os.path.lexists(path):
            return path
    return shelf / f"{key}{PACKED}"


def inside(store: Path, *names: str) -> Path:
    """A file or folder of a store by its names below the store's own, which may be reached by links.

    Raises:
        StoreError: one of the names is a link: what it points to is not the store's.
    """
    path = store
    for name in names:
        path = path / name
        if os.path.islink(path):
            raise linked(path)
    return path


def linked(path: str | Path) -> StoreError:
    """The error for a link where a store has files and folders of its own."""
    return StoreError(
        f"{path} is a link to {os.readlink(path)}, and links inside a store are not followed: remove it, or "
        "put what it points to in its place; a link to the whole store is followed"
    )


def links_in(folder: Path) -> Iterator[Path]:
    """All links in a folder, none of which is followed."""
    for parent, folders, files in os.walk(folder):
        yield from (path for name in (*folders, *files) if (path := Path(parent, name)).is_symlink())


def refuse_links(chunk: Path) -> None:
    """Raise ValueError for a link, or what is neither file nor folder, in a chunk's folder."""
    for link in links_in(chunk):
        raise ValueError(f"{link} is a link to {os.readlink(link)}")
    for parent, _, files in os.walk(chunk):
        for name in files:
            plain(Path(parent, name))


def chunk_entries(stage: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Key and place of every committed chunk in a stage's folder."""
    yield from loose(stage)
    for entry in listed(stage):
        if is_shelf(entry):
            yield from shelved(_own(entry).path)


def is_shelf(entry: os.DirEntry[str]) -> bool:
    """True for a folder of chunks in a stage's folder."""
    return bool(_SHELF.fullmatch(entry.name))


def loose(stage: str | Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Key and place of every chunk that lies in a stage's folder itself, as in format 1."""
    for entry in listed(stage):
        if _KEY.fullmatch(entry.name):
            yield entry.name, _own(entry)


def shelved(shelf: str | Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Key and place of every committed chunk in one folder of a stage's."""
    for chunk in listed(shelf):
        if match := _CHUNK.fullmatch(chunk.name):
            yield match[1], _own(chunk)


def _own(entry: os.DirEntry[str]) -> os.DirEntry[str]:
    """The entry, if it is no link."""
    if entry.is_symlink():
        raise linked(entry.path)
    return entry


def is_stage(entry: os.DirEntry[str]) -> bool:
    """True for the folder of a stage: one that has a chunk."""
    if entry.name[0] == "." or not entry.is_dir() or not any(chunk_entries(Path(entry.path))):
        return False
    return bool(_own(entry))


def strangers(stage: Path) -> Iterator[Path]:
    """Files and folders in a stage's folder that are no chunks."""
    for entry in listed(stage):
        if _SHELF.fullmatch(entry.name) and entry.is_dir():
            yield from (Path(each.path) for each in listed(entry.path) if not _CHUNK.fullmatch(each.name))
        elif not _KEY.fullmatch(entry.name):
            yield Path(entry.path)


def listed(folder: str | Path) -> list[os.DirEntry[str]]:
    """Entries of a folder, none where there is no folder.

    Raises:
        InputError: it cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"{folder} cannot be listed: {error.strerror}; {ALL_READ}") from error


def has_pieces(folder: Path, array: Facts) -> bool:
    """True if no file of an array in a chunk's folder is gone, empty or a link.

    Args:
        folder: the array's.
        array: its entry in the record.

    Raises:
        OSError, ValueError, KeyError: it cannot be said.
    """
    with os.scandir(folder) as entries:
        own = (entry for entry in entries if entry.is_file(follow_symlinks=False))
        files = {entry.name for entry in own if entry.stat().st_size > 0}
    return _pieces(folder, array, len(files)) <= files and not folder.is_symlink()


def _pieces(folder: Path, array: Facts, most: int) -> set[str]:
    """Names of the files of an array, by its record, or by its metadata where the record is of format 1.

    Raises ValueError for more than `most`.
    """
    if "pieces" in array:
        return {"zarr.json", *array["pieces"]}
    metadata = json.loads(content_of(folder / "zarr.json", RECORD_BYTES))
    shape, piece = metadata["shape"], metadata["chunk_grid"]["configuration"]["chunk_shape"]
    counts = [-(-n // length) for n, length in zip(shape, piece, strict=True)]
    if not 0 < prod(counts) <= most:
        if prod(counts):
            raise ValueError(f"{folder} lacks pieces")
        return {"zarr.json"}
    return {"zarr.json", *(".".join(["c", *map(str, at)]) for at in np.ndindex(*counts))}
