"""Gauge fields from one file format to another, read back before the new file appears."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.lattice.formats import GaugeField, read_gauge
from stages.lqcd.lattice.formats.binary import created, fault
from stages.lqcd.lattice.formats.gauge_file import links_to_write
from stages.lqcd.lattice.formats.ildg import encode_ildg
from stages.lqcd.lattice.formats.milc import encode_milc
from stages.lqcd.lattice.formats.nersc import encode_nersc
from stages.lqcd.lattice.geometry import Lattice

SUFFIXES = {"ildg": (".ildg", ".lime"), "nersc": (".nersc",), "milc": (".milc",)}
"""Formats that can be written, and the endings of file names that choose them."""

BITS = {"single": 32, "double": 64}


@dataclass(frozen=True)
class Conversion:
    """A field in its old file and in its new one, and the largest change of a real number among its links."""

    source: GaugeField
    target: GaugeField
    rounding: float


def convert_gauge(
    source: str | Path,
    target: str | Path,
    *,
    format: str | None = None,
    precision: str | None = None,
    overwrite: bool = False,
) -> Conversion:
    """Write the gauge field of a file of any known format into another file, as ILDG, NERSC or MILC v5.

    The new file is read back and compared with what was to be written, number by number; then it appears
    under its name, whole. What the old header says beyond lattice, plaquette and link trace is not handed on.
    Memory: the links three times.

    format: 'ildg', 'nersc' or 'milc', else by the target's suffix; precision: 'single' or 'double', else that
    of the source (MILC v5: single always). Raises InputError: a source that `read_gauge` refuses, an unknown
    format or precision, a target that exists (unless `overwrite`), is the source, or cannot be written.
    """
    source, target = Path(source), Path(target)
    format = format or _format_of(target)
    _check_request(target, format, precision)
    _check_target(source, target, overwrite=overwrite)
    field = read_gauge(source)
    bits = 32 if format == "milc" else BITS[precision] if precision else field.precision
    stored = links_to_write(target, field.links, field.lattice, bits)
    with created(target) as file:
        _encode(file, stored, field.lattice, format, target.stem)
        file.flush()
        written = _read_back(Path(file.name), target, stored)
        _check_target(source, target, overwrite=overwrite)
    return Conversion(field, written, _largest_change(field.links, written.links))


def _format_of(target: Path) -> str:
    for format, suffixes in SUFFIXES.items():
        if target.suffix.lower() in suffixes:
            return format
    known = ", ".join(" or ".join(suffixes) for suffixes in SUFFIXES.values())
    remedy = f"end it in {known}, or give --format {', '.join(SUFFIXES)}"
    raise fault(target, "its name does not tell the format to write", remedy)


def _check_request(target: Path, format: str, precision: str | None) -> None:
    if format not in SUFFIXES:
        raise fault(target, f"format {format!r} cannot be written", f"give one of {', '.join(SUFFIXES)}")
    if precision is not None and precision not in BITS:
        raise fault(target, f"precision {precision!r} is unknown", f"give one of {', '.join(BITS)}")
    if format == "milc" and precision == "double":
        raise fault(target, "MILC v5 files have single precision", "write ildg or nersc, or leave it out")


def _check_target(source: Path, target: Path, *, overwrite: bool) -> None:
    if not target.parent.is_dir():
        raise fault(target, f"its folder {target.parent} does not exist", "make it first")
    if target.is_dir():
        raise fault(target, "this is a folder", "name the file to write")
    if target.exists() and not target.is_file():
        raise fault(target, "this is a device or a pipe", "name the file to write")
    if target.exists() and source.exists() and os.path.samefile(source, target):
        raise fault(target, "this is the file that is read", "give another name")
    if os.path.lexists(target) and not overwrite:
        raise fault(target, "exists already", "give another name, or --overwrite")


def _encode(file: BinaryIO, links: NDArray, lattice: Lattice, format: str, label: str) -> None:
    match format:
        case "ildg":
            encode_ildg(file, links, lattice)
        case "nersc":
            encode_nersc(file, links, lattice, label)
        case "milc":
            encode_milc(file, links, lattice)


def _read_back(path: Path, target: Path, links: NDArray) -> GaugeField:
    """The field in `path`, to become `target`; InputError unless it has exactly these links."""
    try:
        written = read_gauge(path)
    except InputError as error:
        raise fault(target, f"what was written does not read back ({error})", "check the disk") from error
    if written.links.dtype != links.dtype or not all(map(np.array_equal, written.links, links)):
        raise fault(target, "what was written reads back as other links", "check the disk")
    return written


def _largest_change(before: NDArray, after: NDArray) -> float:
    """Largest |a - b| of the real numbers of two fields, direction by direction."""
    changes = (b - a for a, b in zip(before, after, strict=True))
    return max(float(np.abs(change.view(change.real.dtype)).max()) for change in changes)
