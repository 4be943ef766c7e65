"""The configurations that an `ensemble` section stands for: their labels, lattice and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

from stages.lattice.errors import InputError
from stages.lattice.formats import read_extents
from stages.lattice.geometry import Lattice
from workflows.parameter_file import Location, ParameterFile
from workflows.schema import Ensemble, Heatbath, refuse


@dataclass(frozen=True)
class Configurations:
    """Labels, lattice, and the file of each label.

    A label is part of the noise's key: a file that is renamed gets other noise.
    """

    labels: tuple[str, ...]
    lattice: Lattice
    files: dict[str, Path] = field(default_factory=dict)


def configurations(file: ParameterFile, ensemble: Ensemble) -> Configurations:
    """What the ensemble section of a file stands for; reads the headers of gauge files.

    Raises:
        InputError: no file, an unreadable one, two of the same name, or lattices that differ.
    """
    if ensemble.heatbath:
        return _generated(ensemble.heatbath)
    assert ensemble.files is not None
    paths = [Path(name) for name in sorted(glob(str(Path(ensemble.files).expanduser()), recursive=True))]
    refuse(file, _faults(ensemble.files, paths))
    lattices = {path: _lattice(file, path) for path in paths}
    refuse(file, _strangers(lattices))
    return Configurations(tuple(p.name for p in paths), lattices[paths[0]], {p.name: p for p in paths})


def _generated(heatbath: Heatbath) -> Configurations:
    labels = tuple(f"heatbath-{number}" for number in range(heatbath.configurations))
    return Configurations(labels, heatbath.lattice)


def _faults(pattern: str, paths: Sequence[Path]) -> Iterator[tuple[Location, str]]:
    if not paths:
        yield ("ensemble", "files"), f"no file matches {pattern!r}, looking from {Path.cwd()}"
    first: dict[str, Path] = {}
    for path in paths:
        other = first.setdefault(path.name, path)
        if other is not path:
            yield (
                ("ensemble", "files"),
                f"{other} and {path} have the same name, which is the configuration's label: rename one",
            )


def _lattice(file: ParameterFile, path: Path) -> Lattice:
    try:
        return read_extents(path)
    except InputError as error:
        raise file.error(f"{file.name('ensemble', 'files')}: {error}") from None


def _strangers(lattices: dict[Path, Lattice]) -> Iterator[tuple[Location, str]]:
    first, lattice = next(iter(lattices.items()))
    for path, other in lattices.items():
        if other != lattice:
            yield ("ensemble", "files"), f"{path} is a lattice of {other}, but {first} is one of {lattice}"
