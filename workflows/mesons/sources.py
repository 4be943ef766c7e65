"""Which sources a file of the workflow `mesons` asks for: labels, columns, and the files that have them."""

from __future__ import annotations

from dataclasses import dataclass
from glob import glob
from pathlib import Path

from quarkline.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.quark_sources import first_time, read_source
from workflows.mesons.schema import SourceSection
from workflows.parameter_file import ParameterFile


@dataclass(frozen=True)
class Campaign:
    """What is solved for: labels of the sources, their files where they have some, columns of each."""

    sources: tuple[str, ...]
    columns: int
    files: dict[str, Path]


def campaign(file: ParameterFile, section: SourceSection, lattice: Lattice) -> Campaign:
    """The sources that a section stands for; reads those in files. Raises InputError."""
    if section.files is None:
        return Campaign(tuple(place.label for place in section.places()), section.columns, {})
    where, paths = file.name("sources", "files"), source_files(file, section.files)
    try:
        widths = {name: columns_in(path, lattice) for name, path in paths.items()}
    except InputError as error:
        raise file.error(f"{where}: {error}") from None
    for name, width in widths.items():
        if width not in (4, 12):
            raise file.error(f"{where}: {paths[name]} has {width} columns, but mesons take 12 or 4")
    if len(set(widths.values())) > 1:
        raise file.error(f"{where}: sources of one workflow have equally many columns, got {widths}")
    return Campaign(tuple(paths), next(iter(widths.values())), paths)


def source_files(file: ParameterFile, pattern: str) -> dict[str, Path]:
    """The files that a pattern matches, by their names: coordinates of the sources. Raises InputError."""
    where = file.name("sources", "files")
    paths: dict[str, Path] = {}
    for path in map(Path, sorted(glob(str(Path(pattern).expanduser())))):
        if path.name in paths:
            raise file.error(f"{where}: {paths[path.name]} and {path} have one name: rename one of them")
        paths[path.name] = path
    if not paths:
        raise file.error(f"{where}: no file matches {pattern!r}, looking from {Path.cwd()}")
    return paths


def columns_in(path: Path, lattice: Lattice) -> int:
    """Columns of the source in a file. Raises InputError for one that is no source, or zero everywhere."""
    source = read_source(path, lattice)
    try:
        first_time(source, lattice)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return int(source.shape[-1])
