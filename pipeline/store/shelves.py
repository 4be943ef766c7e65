"""Names and places of chunks in a store's folder: what lies there, found by listing.

Below `<store>/<stage>/<first three digits of the key>/`, a chunk is a file `<key>.zarr.zip` or a folder
`<key>/`. Format 1 kept every chunk as a folder `<store>/<stage>/<key>/`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from stages.errors import InputError

PACKED = ".zarr.zip"

_KEY = re.compile(r"[0-9a-f]{64}")
_SHELF = re.compile(r"[0-9a-f]{3}")
_CHUNK = re.compile(rf"([0-9a-f]{{64}})(?:{re.escape(PACKED)})?")


@dataclass(frozen=True)
class ChunkPlace:
    """Stage and key of a chunk, and its place below the store's folder."""

    stage: str
    key: str
    place: str


_PLACE = re.compile(
    rf"(?P<place>(?P<stage>[^/.][^/]*)/(?:[0-9a-f]{{3}}/)?(?P<key>[0-9a-f]{{64}})({re.escape(PACKED)})?)(/.+)?"
)


def chunk_in(path: str) -> ChunkPlace | None:
    """The chunk that a file belongs to, by its path below a store's folder; None for any other file."""
    match = _PLACE.fullmatch(path)
    return ChunkPlace(match["stage"], match["key"], match["place"]) if match else None


def shelf_of(stage: Path, key: str) -> Path:
    """The folder inside a stage's that holds a chunk."""
    return stage / key[:3]


def place_of(stage: Path, key: str) -> Path:
    """The file or folder of a chunk in a stage's folder; where there is none, the file of a small one."""
    shelf = shelf_of(stage, key)
    for path in (shelf / key, stage / key):
        if path.is_dir():
            return path
    return shelf / f"{key}{PACKED}"


def chunk_entries(stage: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Key and place of every committed chunk in a stage's folder."""
    yield from loose(stage)
    for entry in listed(stage):
        if is_shelf(entry):
            yield from shelved(entry.path)


def is_shelf(entry: os.DirEntry[str]) -> bool:
    """True for a folder of chunks in a stage's folder."""
    return bool(_SHELF.fullmatch(entry.name))


def loose(stage: str | Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Key and place of every chunk that lies in a stage's folder itself, as in format 1."""
    for entry in listed(stage):
        if _KEY.fullmatch(entry.name):
            yield entry.name, entry


def shelved(shelf: str | Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Key and place of every committed chunk in one folder of a stage's."""
    for chunk in listed(shelf):
        if match := _CHUNK.fullmatch(chunk.name):
            yield match[1], chunk


def is_stage(entry: os.DirEntry[str]) -> bool:
    """True for the folder of a stage: one that has a chunk."""
    return entry.name[0] != "." and entry.is_dir() and any(True for _ in chunk_entries(Path(entry.path)))


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
        raise InputError(
            f"{folder} cannot be listed: {error.strerror}; a store reads all its folders"
        ) from error


def has_pieces(folder: Path, array: Mapping[str, Any]) -> bool:
    """True if no file of an array in a chunk's folder is gone or empty.

    Args:
        folder: the array's.
        array: its entry in the record.

    Raises:
        OSError, ValueError, KeyError: it cannot be said.
    """
    with os.scandir(folder) as entries:
        return _pieces(folder, array) <= {entry.name for entry in entries if entry.stat().st_size > 0}


def _pieces(folder: Path, array: Mapping[str, Any]) -> set[str]:
    """Names of the files of an array, by its record, or by its metadata where the record is of format 1."""
    if "pieces" in array:
        return {"zarr.json", *array["pieces"]}
    metadata = json.loads((folder / "zarr.json").read_bytes())
    shape, piece = metadata["shape"], metadata["chunk_grid"]["configuration"]["chunk_shape"]
    counts = [-(-n // length) for n, length in zip(shape, piece, strict=True)]
    if not prod(counts):
        return {"zarr.json"}
    return {"zarr.json", *(".".join(["c", *map(str, at)]) for at in np.ndindex(*counts))}
