"""Gauge files as other codes write them, site by site in plain Python from the formats' descriptions.

Independent of the readers under test: nothing is shared with them but the lexicographic layout of the links,
``links[t, z, y, x, mu, row, column]``.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from numpy.typing import NDArray

CODES = {4: "f", 8: "d"}


def lexicographic_sites(links: NDArray) -> Iterator[NDArray]:
    """Links ``[mu, 3, 3]`` of each site, x fastest and t slowest."""
    for t, z, y, x in itertools.product(*(range(extent) for extent in links.shape[:4])):
        yield links[t, z, y, x]


def reals(matrix: NDArray, order: str, size: int) -> bytes:
    """The numbers of an array by rows, real and imaginary parts alternating."""
    pairs = [part for number in matrix.reshape(-1) for part in (float(number.real), float(number.imag))]
    return struct.pack(f"{order}{len(pairs)}{CODES[size]}", *pairs)


def rotated(word: int, count: int) -> int:
    return (word << count | word >> (32 - count)) & 0xFFFFFFFF


def scidac_checksum(sites: list[bytes]) -> tuple[int, int]:
    sums = [0, 0]
    for number, site in enumerate(sites):
        for i, period in enumerate((29, 31)):
            sums[i] ^= rotated(zlib.crc32(site), number % period)
    return sums[0], sums[1]


def milc_checksum(words: tuple[int, ...]) -> tuple[int, int]:
    sums = [0, 0]
    for number, word in enumerate(words):
        for i, period in enumerate((29, 31)):
            sums[i] ^= rotated(word, number % period)
    return sums[0], sums[1]


def write_milc(path: Path, links: NDArray, order: str) -> None:
    t, z, y, x = links.shape[:4]
    data = b"".join(reals(site, order, 4) for site in lexicographic_sites(links))
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    stamp = b"Tue Nov 20 01:02:03 2018"
    header = struct.pack(f"{order}5i64siII", 20103, x, y, z, t, stamp, 0, *milc_checksum(words))
    path.write_bytes(header + data)


def write_nersc(
    path: Path,
    links: NDArray,
    floating_point: str,
    order: str,
    size: int,
    rows: int,
    datatype: str,
    **changes: str,
) -> None:
    """`changes`: header values to state instead of the true ones; plaquette and link_trace must be given."""
    t, z, y, x = links.shape[:4]
    data = b"".join(reals(site[:, :rows], order, size) for site in lexicographic_sites(links))
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    lines = {
        "DATATYPE": datatype,
        **{f"DIMENSION_{i}": str(extent) for i, extent in enumerate((x, y, z, t), 1)},
        "CHECKSUM": f"{sum(words) % 2**32:X}",
        "FLOATING_POINT": floating_point,
        **changes,
    }
    body = "".join(f"{key} = {text}\n" for key, text in lines.items())
    path.write_bytes(f"BEGIN_HEADER\n{body}END_HEADER\n".encode() + data)


def write_ddalphaamg(path: Path, links: NDArray, plaquette: float) -> None:
    t, z, y, x = links.shape[:4]
    data = b"".join(reals(site[::-1], "<", 8) for site in lexicographic_sites(links))
    path.write_bytes(struct.pack("<4id", t, z, y, x, 3 * plaquette) + data)


def write_openqcd(path: Path, links: NDArray, plaquette: float) -> None:
    """The eight links at each odd point in the order t, x, y, z, as openQCD's export_cnfg writes them."""
    lt, lz, ly, lx = links.shape[:4]
    data = bytearray()
    for t, x, y, z in itertools.product(range(lt), range(lx), range(ly), range(lz)):
        if (t + x + y + z) % 2:
            data += reals(links[t, z, y, x, 3], "<", 8) + reals(links[(t - 1) % lt, z, y, x, 3], "<", 8)
            data += reals(links[t, z, y, x, 0], "<", 8) + reals(links[t, z, y, (x - 1) % lx, 0], "<", 8)
            data += reals(links[t, z, y, x, 1], "<", 8) + reals(links[t, z, (y - 1) % ly, x, 1], "<", 8)
            data += reals(links[t, z, y, x, 2], "<", 8) + reals(links[t, (z - 1) % lz, y, x, 2], "<", 8)
    path.write_bytes(struct.pack("<4id", lt, lx, ly, lz, 3 * plaquette) + bytes(data))


def lime_record(kind: str, payload: bytes, flags: int = 0) -> bytes:
    header = struct.pack(">IHHQ128s", 0x456789AB, 1, flags, len(payload), kind.encode())
    return header + payload + b"\0" * (-len(payload) % 8)


def ildg_format(links: NDArray, precision: int) -> bytes:
    t, z, y, x = links.shape[:4]
    extents = f"<lx>{x}</lx><ly>{y}</ly><lz>{z}</lz><lt>{t}</lt>"
    text = f"<ildgFormat><version>1.0</version><precision>{precision}</precision>{extents}</ildgFormat>"
    return lime_record("ildg-format", text.encode() + b"\0")


def ildg_data(links: NDArray, precision: int) -> bytes:
    return b"".join(reals(site, ">", precision // 8) for site in lexicographic_sites(links))


def scidac_headers(
    links: NDArray, precision: int, datum_reals: int = 18, count: int = 4, volfmt: int = 0
) -> bytes:
    t, z, y, x = links.shape[:4]
    file_xml = f"<scidacFile><dims>{x} {y} {z} {t} </dims><volfmt>{volfmt}</volfmt></scidacFile>"
    letter = {32: "F", 64: "D"}[precision]
    record_xml = (
        f"<scidacRecord><recordtype>0</recordtype><precision>{letter}</precision>"
        f"<typesize>{datum_reals * precision // 8}</typesize><datacount>{count}</datacount></scidacRecord>"
    )
    return lime_record("scidac-private-file-xml", file_xml.encode(), 0x8000) + lime_record(
        "scidac-private-record-xml", record_xml.encode() + b"\0", 0x8000
    )


def checksum_record(a: int, b: int) -> bytes:
    text = f"<scidacChecksum><version>1.0</version><suma>{a:x}</suma><sumb>{b:x}</sumb></scidacChecksum>"
    return lime_record("scidac-checksum", text.encode(), 0x4000)
