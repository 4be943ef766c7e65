"""Sources of the workflow `mesons` that a user made: the files that a pattern matches, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from glob import glob
from pathlib import Path

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.quark_sources import first_time, read_source
from workflows import Problem

WIDTHS = (4, 12)
"""Columns of a source that mesons can be made of: the spins, or spins and colours."""


def source_files(pattern: str) -> dict[str, Path]:
    """The files that a pattern matches, by their names: coordinates of the sources."""
    return {path.name: path for path in _matches(pattern)}


def file_misfits(pattern: str, lattice: Lattice) -> Iterator[Problem]:
    """Problems of the first of the files that a pattern matches; reads them."""
    if problem := _problem(pattern, lattice):
        yield ("sources", "files"), problem


def _problem(pattern: str, lattice: Lattice) -> str | None:
    paths: dict[str, Path] = {}
    for path in _matches(pattern):
        if path.name in paths:
            return f"{paths[path.name]} and {path} have one name: rename one of them"
        paths[path.name] = path
    if not paths:
        return f"no file matches {pattern!r}, looking from {Path.cwd()}"
    try:
        widths = {name: _columns(path, lattice) for name, path in paths.items()}
    except InputError as error:
        return str(error)
    for name, width in widths.items():
        if width not in WIDTHS:
            return f"{paths[name]} has {width} columns, but mesons take 12 or 4"
    if len(set(widths.values())) > 1:
        return f"sources of one workflow have equally many columns, got {widths}"
    return None


def _matches(pattern: str) -> list[Path]:
    return [Path(name) for name in sorted(glob(str(Path(pattern).expanduser())))]


def _columns(path: Path, lattice: Lattice) -> int:
    """Columns of the source in a file. Raises InputError for one that is no source, or zero everywhere."""
    source = read_source(path, lattice)
    try:
        first_time(source, lattice)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return int(source.shape[-1])
