"""A few planes of the gauge field in a file, read in milliseconds, for estimates in a plan."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.formats import read_gauge, sources
from stages.lqcd.lattice.formats.binary import damaged, opened
from stages.lqcd.lattice.formats.gauge_file import PLAQUETTE, GaugeSource
from stages.lqcd.lattice.formats.ildg import LimeGaugeFile
from stages.lqcd.lattice.formats.milc import HEADER, MilcFile
from stages.lqcd.lattice.formats.nersc import NerscFile, complete_third_rows
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

READ_WHOLE = 16**4
"""Largest lattice, in sites, of a format without planes that is read whole."""


def stated_plaquette(path: Path) -> float | None:
    """The mean plaquette that a file's header states, normalised to 1, None where it states none."""
    claims = next(iter(sources(path))).claims
    stated = (claim for claim in claims if claim.name == PLAQUETTE and claim.telling and claim.text is None)
    return next((claim.value for claim in stated), None)


def first_planes(path: Path, planes: int, slices: int) -> NDArray[np.complex128] | None:
    """Links ``[t, z, y, x, mu, 3, 3]`` of the first planes z = 0 ... of the slices t = 0 ..., as stored.

    Nothing is verified. None of a large field whose format does not order sites in planes. Raises InputError.
    """
    candidates = sources(path)
    source = candidates[0]
    lattice, planes = source.lattice, min(planes, source.lattice.extents[2])
    if isinstance(source, LimeGaugeFile | MilcFile | NerscFile):
        read = [_planes(source, planes, time) for time in range(slices)]
        return np.stack(read)
    if lattice.volume > READ_WHOLE:
        return None
    field = read_gauge(path)
    return _lexicographic(field.links, field.lattice)[:slices, :planes]


def _planes(source: GaugeSource, planes: int, time: int) -> NDArray[np.complex128]:
    offset, word, rows = _layout(source)
    x, y, z, _ = source.lattice.extents
    site = 4 * rows * 6 * np.dtype(word).itemsize
    with opened(source.path) as file:
        file.seek(offset + time * z * y * x * site)
        raw = file.read(planes * y * x * site)
    if len(raw) < planes * y * x * site:
        raise damaged(source.path, "truncated: it ends amid its links")
    links = np.zeros((planes, y, x, 4, 3, 3), complex)
    with np.errstate(over="ignore", invalid="ignore"):
        reals = np.frombuffer(raw, word).astype(float)
    links[..., :rows, :] = reals.view(complex).reshape(planes, y, x, 4, rows, 3)
    if rows == 2:
        complete_third_rows(links)
    return links


def _layout(source: GaugeSource) -> tuple[int, str, int]:
    """Byte of the first link, dtype of a real, rows of a matrix."""
    if isinstance(source, LimeGaugeFile):
        return source.stored.message.data.offset, f">f{source.stored.precision // 8}", 3
    if isinstance(source, MilcFile):
        return struct.calcsize(source.order + HEADER), f"{source.order}f4", 3
    assert isinstance(source, NerscFile)
    return source.offset, source.word, source.rows


def _lexicographic(links: NDArray, lattice: Lattice) -> NDArray[np.complex128]:
    """Links ``[t, z, y, x, mu, 3, 3]`` of those ``[mu, parity, site, 3, 3]``."""
    x, y, z, t = lattice.extents
    ordered = np.empty((lattice.volume, 4, 3, 3), complex)
    for parity in (EVEN, ODD):
        ordered[lattice.lexicographic(parity)] = np.moveaxis(links[:, parity], 0, 1)
    return ordered.reshape(t, z, y, x, 4, 3, 3)
