"""Small healthy files of every format that is read, and how what is read is compared with what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from outcomes import Outcome

from mutations import Shape
from stages.lqcd.lattice.formats import ScidacField, read_field, read_gauge, write_ildg, write_nersc
from stages.lqcd.lattice.formats.gauge_file import Check, GaugeField
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import plaquette
from stages.lqcd.spectroscopy.quark_sources import read_source
from support import foreign_writers as foreign
from support.lexicographic import gauge_to_lexicographic, to_lexicographic

LATTICE = Lattice((2, 4, 2, 4))


@dataclass(frozen=True)
class Format:
    """A healthy file of a format; `checksum`: whether changed numbers must be noticed."""

    name: str
    shape: Shape
    read: Callable[[Path], Any]
    judge: Callable[[Any], Outcome]
    checksum: bool = True


def gauge_formats(folder: Path) -> Iterator[Format]:
    """Gauge fields of every format."""
    links = _random_links()
    lexicographic, mean = gauge_to_lexicographic(links, LATTICE), plaquette(links, LATTICE).total
    write_ildg(folder / "ILDG", links, LATTICE, 32)
    (folder / "SciDAC links").write_bytes(_scidac(foreign.ildg_data(lexicographic, 32), "F", 4))
    foreign.write_milc(folder / "MILC v5", lexicographic, ">")
    write_nersc(folder / "NERSC, 3 rows", links, LATTICE, 64)
    write_nersc(folder / "NERSC, 2 rows", links, LATTICE, 32, rows=2)
    foreign.write_openqcd(folder / "openQCD", lexicographic, mean)
    foreign.write_ddalphaamg(folder / "DDalphaAMG", lexicographic, mean)
    headers = {"ILDG": 1900, "SciDAC links": 900, "MILC v5": 96, "NERSC, 3 rows": 420, "NERSC, 2 rows": 420}
    for path in sorted(folder.iterdir()):
        shape = Shape(
            path.read_bytes(), headers.get(path.name, 24), lime=path.name in ("ILDG", "SciDAC links")
        )
        same = _same_gauge(read_gauge(path))
        yield Format(path.name, shape, read_gauge, same, path.name not in ("openQCD", "DDalphaAMG"))


def field_formats(folder: Path) -> Iterator[Format]:
    """SciDAC fields of colour matrices and of colour vectors, and a source."""
    links = gauge_to_lexicographic(_random_links(), LATTICE)
    contents = {
        "SciDAC field, matrices": _scidac(foreign.ildg_data(links, 32), "F", 4),
        "SciDAC field, vectors": _scidac(_vectors(), "D", 2),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        same = _same_field(read_field(folder / name))
        yield Format(name, Shape(content, 900, lime=True), read_field, same)
    x, y, z, t = LATTICE.extents
    source = np.random.default_rng(577).normal(size=(t, z, y, x, 4, 3, 1)) + 0j
    np.save(folder / "source.npy", source)
    yield Format(
        "source (NumPy)",
        Shape((folder / "source.npy").read_bytes(), 128),
        lambda path: read_source(path, LATTICE),
        _same_array(read_source(folder / "source.npy", LATTICE)),
        checksum=False,
    )


def _random_links() -> NDArray:
    rng = np.random.default_rng(20261)
    shape = (4, 2, LATTICE.half_volume, 3, 3)
    unitary, _ = np.linalg.qr(rng.normal(size=shape) + 1j * rng.normal(size=shape))
    return unitary / (np.linalg.det(unitary) ** (1 / 3))[..., None, None]


def _vectors() -> bytes:
    """Two colour vectors per site in double precision, big-endian."""
    return np.random.default_rng(811).normal(size=(LATTICE.volume, 12)).astype(">f8").tobytes()


def _scidac(data: bytes, letter: str, count: int) -> bytes:
    """A SciDAC file of one field with `count` data per site, of precision F or D."""
    x, y, z, t = LATTICE.extents
    site = len(data) // LATTICE.volume
    file_xml = f"<scidacFile><dims>{x} {y} {z} {t} </dims><volfmt>0</volfmt></scidacFile>"
    record_xml = (
        f"<scidacRecord><recordtype>0</recordtype><precision>{letter}</precision>"
        f"<typesize>{site // count}</typesize><datacount>{count}</datacount></scidacRecord>"
    )
    sums = foreign.scidac_checksum([data[i : i + site] for i in range(0, len(data), site)])
    return b"".join(
        [
            foreign.lime_record("scidac-private-file-xml", file_xml.encode(), 0x8000),
            foreign.lime_record("scidac-file-xml", b"<title>file</title>", 0x4000),
            foreign.lime_record("scidac-private-record-xml", record_xml.encode(), 0x8000),
            foreign.lime_record("scidac-record-xml", b"<title>field</title>"),
            foreign.lime_record("scidac-binary-data", data),
            foreign.checksum_record(*sums),
        ]
    )


def _same_gauge(healthy: GaugeField) -> Callable[[GaugeField], Outcome]:
    def judge(field: GaugeField) -> Outcome:
        same = field.lattice == healthy.lattice
        if same and np.array_equal(field.links, healthy.links):
            return Outcome.IDENTICAL
        if field.notes:
            return Outcome.UNVERIFIED
        if not same and _same_numbers(_in_file_order(field), _in_file_order(healthy)):
            return Outcome.HEADER
        collides = field.checksums and _gauge_sum(field) == _stated(field.checksums)
        return Outcome.COLLISION if collides else Outcome.CHANGED

    return judge


def _stated(checks: tuple[Check, ...]) -> tuple[int, ...]:
    """The checksum that a file states."""
    return tuple(int(str(check.expected), 16) for check in checks)


def _in_file_order(field: GaugeField) -> NDArray:
    return gauge_to_lexicographic(field.links, field.lattice).reshape(-1)


def _gauge_sum(field: GaugeField) -> tuple[int, ...]:
    """The checksum of a field's links by plain Python: that of the file, if its reader read it right."""
    lexicographic = gauge_to_lexicographic(field.links, field.lattice)
    if field.format == "NERSC":
        rows = 3 if field.metadata["DATATYPE"].upper().endswith("3X3") else 2
        return (sum(_words(lexicographic[..., :rows, :])) % 2**32,)
    if field.format == "MILC v5":
        return foreign.milc_checksum(tuple(_words(lexicographic)))
    return _site_sum(lexicographic)


def _words(numbers: NDArray) -> list[int]:
    return np.ascontiguousarray(numbers).view(np.uint32).ravel().tolist()


def _site_sum(lexicographic: NDArray) -> tuple[int, ...]:
    """SciDAC's checksum of numbers ``[t, z, y, x, ...]``."""
    stored = lexicographic.astype(lexicographic.dtype.newbyteorder(">"))
    return foreign.scidac_checksum([site.tobytes() for site in stored.reshape(LATTICE.volume, -1)])


def _same_field(healthy: ScidacField) -> Callable[[ScidacField], Outcome]:
    def judge(field: ScidacField) -> Outcome:
        if field.lattice == healthy.lattice and np.array_equal(field.values, healthy.values):
            return Outcome.IDENTICAL
        if field.notes:
            return Outcome.UNVERIFIED
        numbers, before = _stored(field), _stored(healthy)
        if numbers.shape != before.shape and _same_numbers(numbers.ravel(), before.ravel()):
            return Outcome.HEADER
        return Outcome.COLLISION if _site_sum(numbers) == _stated(field.checks) else Outcome.CHANGED

    return judge


def _stored(field: ScidacField) -> NDArray:
    """The numbers of a field as its file has them, ``[t, z, y, x, datum, ...]``."""
    matrices = field.values.ndim == 5
    return to_lexicographic(np.moveaxis(field.values, *((0, 2) if matrices else (3, 2))), field.lattice)


def _same_array(healthy: NDArray) -> Callable[[NDArray], Outcome]:
    return lambda read: Outcome.IDENTICAL if np.array_equal(read, healthy) else Outcome.CHANGED


def _same_numbers(one: NDArray, other: NDArray) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one, other))
