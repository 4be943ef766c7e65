"""Between the lexicographic site data of files (t, z, y, x; x fastest) and parity-ordered fields, in slabs.

A row is the line of sites along x. In row r = (t * Lz + z) * Ly + y the even sites have x mod 2 = (y + z + t)
mod 2, and each parity's half of the row goes to sites r * Lx/2 ... (r + 1) * Lx/2 - 1 of its field.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.formats.binary import SLAB_BYTES, read_slabs
from stages.lqcd.lattice.formats.checksum import Checksum
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def read_sites(
    path: Path, offset: int, lattice: Lattice, word: str, field: NDArray, checksum: Checksum | None = None
) -> tuple[int, ...]:
    """Fill a field from the site data stored at `offset`; return the words of the checksum.

    word: dtype of a stored real with its byte order, such as '>f4'.
    field: complex ``[parity, site, ...]`` of the same precision, usually a view with its axes moved; a site's
    numbers are stored in the order of its last axes.
    """
    stored = np.dtype(word)
    site_shape = field.shape[2:]
    row_sites = lattice.extents[0]
    site_bytes = int(np.prod(site_shape)) * 2 * stored.itemsize

    def use(first_row: int, raw: NDArray[np.uint8]) -> tuple[int, ...]:
        values = raw.view(stored).astype(stored.newbyteorder("="), copy=False).view(field.dtype)
        _scatter(values.reshape(len(raw), row_sites // 2, 2, *site_shape), first_row, lattice, field)
        if checksum is None:
            return ()
        return checksum.partial(raw.reshape(-1, site_bytes), first_row * row_sites, word[0])

    partials = read_slabs(path, offset, lattice.volume // row_sites, row_sites * site_bytes, use)
    return checksum.total(partials) if checksum else ()


def encoded_slabs(field: NDArray, lattice: Lattice, word: str) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The field ``[parity, site, ...]`` as files store it, by slabs: first site, bytes ``[site, byte]``."""
    stored = np.dtype(word)
    site_shape = field.shape[2:]
    row_sites = lattice.extents[0]
    rows = lattice.volume // row_sites
    step = max(1, SLAB_BYTES // (row_sites * int(np.prod(site_shape)) * 2 * stored.itemsize))
    for first in range(0, rows, step):
        values = np.empty((min(step, rows - first), row_sites // 2, 2, *site_shape), field.dtype)
        _gather(values, first, lattice, field)
        reals = values.view(field.real.dtype).astype(stored, copy=False)
        yield first * row_sites, reals.reshape(len(values) * row_sites, -1).view(np.uint8)


def _scatter(rows: NDArray, first_row: int, lattice: Lattice, field: NDArray) -> None:
    """Store rows of sites ``[row, x // 2, x % 2, ...]`` in ``field[parity, site, ...]``."""
    for parity in (EVEN, ODD):
        half = rows[np.arange(len(rows)), :, _offset(first_row, len(rows), lattice, parity)]
        field[parity, _sites(first_row, len(rows), lattice)] = half.reshape(-1, *field.shape[2:])


def _gather(rows: NDArray, first_row: int, lattice: Lattice, field: NDArray) -> None:
    """Fetch rows of sites ``[row, x // 2, x % 2, ...]`` from ``field[parity, site, ...]``."""
    for parity in (EVEN, ODD):
        half = field[parity, _sites(first_row, len(rows), lattice)].reshape(*rows.shape[:2], *field.shape[2:])
        rows[np.arange(len(rows)), :, _offset(first_row, len(rows), lattice, parity)] = half


def _sites(first_row: int, rows: int, lattice: Lattice) -> slice:
    half_row = lattice.extents[0] // 2
    return slice(first_row * half_row, (first_row + rows) * half_row)


def _offset(first_row: int, rows: int, lattice: Lattice, parity: int) -> NDArray[np.int64]:
    """First x, 0 or 1, of the sites of a parity in each row."""
    _, ly, lz, _ = lattice.extents
    row = np.arange(first_row, first_row + rows)
    return (row % ly + row // ly % lz + row // (ly * lz) + parity) % 2
