"""Checksums against zlib and the formulas of the formats, whole and in slabs."""

import struct
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.lattice.formats.site_data import MILC, NERSC, SCIDAC, Checksum, site_crc32
from support.foreign_writers import milc_checksum, scidac_checksum

SITES = 1000


def random_sites(site_bytes: int) -> NDArray[np.uint8]:
    return np.random.default_rng(9031).integers(0, 256, (SITES, site_bytes), dtype=np.uint8)


@pytest.mark.parametrize("site_bytes", [8, 24, 288, 576])
def test_crc32_is_that_of_zlib(site_bytes: int) -> None:
    raw = random_sites(site_bytes)
    assert site_crc32(raw).tolist() == [zlib.crc32(site.tobytes()) for site in raw]


def test_scidac_checksum_is_its_formula() -> None:
    raw = random_sites(288)
    assert SCIDAC.partial(raw, 0, ">") == scidac_checksum([site.tobytes() for site in raw])


@pytest.mark.parametrize("order", ["<", ">"])
def test_milc_checksum_is_its_formula(order: str) -> None:
    raw = random_sites(24)
    words = struct.unpack(f"{order}{raw.size // 4}I", raw.tobytes())
    assert MILC.partial(raw, 0, order) == milc_checksum(words)


@pytest.mark.parametrize("order", ["<", ">"])
def test_nersc_checksum_is_its_formula(order: str) -> None:
    raw = random_sites(48)
    words = struct.unpack(f"{order}{raw.size // 4}I", raw.tobytes())
    assert NERSC.partial(raw, 0, order) == (sum(words) % 2**32,)


@pytest.mark.parametrize("checksum", [SCIDAC, MILC, NERSC])
def test_slabs_in_any_order_give_the_whole(checksum: Checksum) -> None:
    raw = random_sites(24)
    parts = [checksum.partial(raw[first:last], first, ">") for first, last in ((700, 1000), (0, 7), (7, 700))]
    assert checksum.total(parts) == checksum.partial(raw, 0, ">")


@pytest.mark.parametrize("checksum", [SCIDAC, MILC, NERSC])
def test_any_flipped_bit_shows(checksum: Checksum) -> None:
    raw = random_sites(24)
    whole = checksum.partial(raw, 0, ">")
    for site, byte, bit in ((0, 0, 0), (499, 13, 4), (999, 23, 7)):
        changed = raw.copy()
        changed[site, byte] ^= 1 << bit
        assert all(a != b for a, b in zip(checksum.partial(changed, 0, ">"), whole, strict=True))
