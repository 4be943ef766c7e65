"""Site data of files (t, z, y, x; x fastest): to and from fields by parity in slabs, and their checksums.

A row is the line of sites along x. In row r = (t * Lz + z) * Ly + y the even sites have x mod 2 = (y + z + t)
mod 2, and each parity's half of the row goes to sites r * Lx/2 ... (r + 1) * Lx/2 - 1 of its field.

A `Checksum` maps a slab of consecutive sites to partial values; XOR and addition do not depend on the order
in which the slabs are combined, so that slabs may be read by several threads. Measured on one core
per site of 576 bytes: SciDAC 0.28 us (2.1 GB/s; a Python loop over `zlib.crc32` takes 0.46 us and keeps the
GIL), MILC 0.25 us, NERSC 0.07 us.

- SciDAC (QIO's DML_checksum): c_s = CRC-32 of the bytes of site s, a = XOR_s rotl(c_s, s mod 29),
  b = XOR_s rotl(c_s, s mod 31), s the lexicographic site number.
- MILC v5: XOR_k rotl(w_k, k mod 29) and XOR_k rotl(w_k, k mod 31) over all 32-bit words w_k (native values).
- NERSC: sum of all 32-bit words (native values) modulo 2^32. MILC prints the NERSC checksum of a field: that
  of the first two rows of its links in single precision.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.formats.binary import SLAB_BYTES, read_slabs
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Checksum:
    """A checksum of one or two 32-bit words.

    names: what each word is called in reports.
    partial: (bytes ``[site, byte]`` of a slab, number of its first site, byte order '<' or '>') -> its words.
    combine: how the words of two slabs make those of both.
    """

    names: tuple[str, ...]
    partial: Callable[[Bytes, int, str], tuple[int, ...]]
    combine: Callable[[int, int], int]

    def total(self, partials: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        """The words of the whole file from those of all its slabs."""
        return tuple(reduce(self.combine, words) for words in zip(*partials, strict=True))


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


def read_links(
    path: Path, offset: int, lattice: Lattice, word: str, checksum: Checksum, rows: int = 3
) -> tuple[NDArray, tuple[int, ...]]:
    """Links ``[mu, parity, site, 3, 3]`` stored with directions x y z t at each site, and their checksum.

    rows: of each link that are stored, the others are not filled.
    """
    links = np.empty((4, 2, lattice.half_volume, 3, 3), f"c{2 * np.dtype(word).itemsize}")
    return links, read_sites(path, offset, lattice, word, np.moveaxis(links, 0, 2)[..., :rows, :], checksum)


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


def site_crc32(raw: Bytes) -> NDArray[np.uint32]:
    """CRC-32 (zlib's) of each site's bytes; `raw` is C-contiguous ``[site, byte]``, 8 n bytes per site."""
    from stages.lqcd.lattice.compiled import crc32

    return crc32(raw.view("<u4").astype(np.uint32, copy=False), _CRC_TABLES)


def _scidac_words(raw: Bytes, first_site: int, order: str) -> tuple[int, ...]:
    return _rotated_words(site_crc32(raw), first_site)


def _milc_words(raw: Bytes, first_site: int, order: str) -> tuple[int, ...]:
    return _rotated_words(_native_words(raw, order), first_site * (raw.shape[1] // 4))


def _rotated_words(words: NDArray[np.uint32], first: int) -> tuple[int, ...]:
    from stages.lqcd.lattice.compiled import rotated_xor

    return tuple(int(rotated_xor(words, first, period)) for period in (29, 31))


def _nersc_words(raw: Bytes, first_site: int, order: str) -> tuple[int, ...]:
    return (int(_native_words(raw, order).sum(dtype=np.uint64) & 0xFFFFFFFF),)


def _native_words(raw: Bytes, order: str) -> NDArray[np.uint32]:
    """All 32-bit words of a slab in native order (the halves of a 64-bit number may change places)."""
    return raw.reshape(-1).view(f"{order}u4").astype(np.uint32, copy=False)


def _add(a: int, b: int) -> int:
    return (a + b) & 0xFFFFFFFF


SCIDAC = Checksum(("SciDAC checksum a", "SciDAC checksum b"), _scidac_words, operator.xor)
MILC = Checksum(("MILC checksum sum29", "MILC checksum sum31"), _milc_words, operator.xor)
NERSC = Checksum(("NERSC checksum",), _nersc_words, _add)


def _crc_tables() -> NDArray[np.uint32]:
    """Tables ``[8, 256]`` for CRC-32 eight bytes at a time ("slicing by 8", Kounavis and Berry 2005)."""
    tables = np.empty((8, 256), np.uint32)
    remainder = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        remainder = np.where(remainder & 1, (remainder >> 1) ^ np.uint32(0xEDB88320), remainder >> 1)
    tables[0] = remainder
    for k in range(1, 8):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 255]
    return tables


_CRC_TABLES = _crc_tables()
