"""NERSC archive files ("Gauge Connection"): an ASCII header, and two or three rows of each link.

Header lines are ``KEY = VALUE`` between BEGIN_HEADER and END_HEADER. The third row left out by 4D_SU3_GAUGE
is conj(row 1 x row 2). CHECKSUM is the sum modulo 2^32 of the 32-bit words stored, PLAQUETTE the mean of Re
tr P / 3 and LINK_TRACE that of Re tr U / 3. FLOATING_POINT without BIG or LITTLE names no byte order (writers
differ): that in which the first stored row has unit length is taken.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.formats.binary import (
    WHOLE_NUMBER,
    created,
    damaged,
    expect_bytes,
    fault,
    lattice_of,
    opened,
)
from stages.lqcd.lattice.formats.gauge_file import (
    LINK_TRACE,
    PLAQUETTE,
    Check,
    Claim,
    checksum_checks,
    links_to_write,
    printed_claim,
)
from stages.lqcd.lattice.formats.site_data import NERSC, encoded_slabs, read_links
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import link_statistics, plaquette
from stages.lqcd.lattice.threads import in_threads

BEGINNING = b"BEGIN_HEADER"
HEADER_LIMIT = 1 << 16
"""Bytes among which the header must end."""

DATATYPES = {2: "4D_SU3_GAUGE", 3: "4D_SU3_GAUGE_3x3"}
"""DATATYPE by rows stored; readers take it in any case."""

ORDERS = {"BIG": ">", "LITTLE": "<"}
READ = re.compile("DATATYPE|FLOATING_POINT|CHECKSUM|PLAQUETTE|LINK_TRACE|DIMENSION_[1-4]")
"""Keys whose values are used."""
BOUNDARY = re.compile("BOUNDARY_[1-4]")

THIRD_ROW_TOLERANCE = 1e-5
"""How far a third row may be from conj(row 1 x row 2) for a file that leaves it out."""


@dataclass(frozen=True)
class NerscFile:
    """A NERSC archive file; its header has been read."""

    path: Path
    lattice: Lattice
    offset: int
    word: str
    rows: int
    metadata: dict[str, str]
    format: str = "NERSC"

    @property
    def precision(self) -> int:
        return 8 * int(self.word[-1])

    @property
    def claims(self) -> tuple[Claim, ...]:
        stated = ((PLAQUETTE, "PLAQUETTE"), (LINK_TRACE, "LINK_TRACE"))
        return tuple(printed_claim(name, self.metadata.get(key, ""), self.precision) for name, key in stated)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Boundaries that are not periodic, which is said of the quarks: no link here has a sign for it."""
        stated = (f"{key} = {text}" for key, text in self.metadata.items() if BOUNDARY.fullmatch(key))
        return tuple(
            f"states {each}: links are taken as stored; the workflow file says the boundary of the quarks"
            for each in stated
            if not each.upper().endswith("= PERIODIC")
        )

    def load(self) -> tuple[NDArray, tuple[Check, ...]]:
        links, computed = read_links(self.path, self.offset, self.lattice, self.word, NERSC, self.rows)
        if self.rows == 2:
            complete_third_rows(links)
        stated = "CHECKSUM" in self.metadata
        return links, checksum_checks(NERSC, (self._stated_checksum(),), computed) if stated else ()

    def _stated_checksum(self) -> int:
        text = value(self.path, self.metadata, "CHECKSUM")
        if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,8}", text):
            raise damaged(
                self.path, f"its header states CHECKSUM = {text}, which is no 32-bit hexadecimal number"
            )
        return int(text, 16)


def open_nersc(path: Path) -> NerscFile:
    """Read the header of a NERSC file; InputError if it is incomplete or does not fit the file's size."""
    header, offset = _header(path)
    datatype = value(path, header, "DATATYPE")
    rows = next((rows for rows, name in DATATYPES.items() if name.upper() == datatype.upper()), None)
    if rows is None:
        remedy = f"{' and '.join(DATATYPES.values())} can be read"
        raise fault(path, f"its header states DATATYPE = {datatype}", remedy)
    lattice = lattice_of(
        path, tuple(_integer(path, header, f"DIMENSION_{number}") for number in (1, 2, 3, 4))
    )
    word = _word(path, value(path, header, "FLOATING_POINT"), offset)
    expect_bytes(path, lattice, offset, lattice.volume * 4 * rows * 6 * int(word[-1]))
    return NerscFile(path, lattice, offset, word, rows, header)


def value(path: Path, header: dict[str, str], key: str) -> str:
    """Value of a key that the header must have."""
    if key not in header:
        raise damaged(path, f"its header has no {key}")
    return header[key]


def complete_third_rows(links: NDArray) -> None:
    """Set the third row of links ``[mu, parity, site, 3, 3]`` to conj(row 1 x row 2), in place."""
    matrices = links.reshape(-1, 3, 3)
    step = 1 << 14

    def one(first: int) -> None:
        block = matrices[first : first + step]
        with np.errstate(over="ignore", invalid="ignore"):  # damaged rows: their checks say so
            block[:, 2] = _third_row(block)

    in_threads(one, range(0, len(matrices), step))


def write_nersc(path: str | Path, links: NDArray, lattice: Lattice, precision: int, rows: int = 3) -> None:
    """Write links ``[mu, parity, site, 3, 3]`` as a big-endian NERSC file, 32 or 64 bits, 3 or 2 rows.

    The file appears whole or not at all. Raises InputError for links of another shape, a precision that is
    neither 32 nor 64, links whose third row two rows do not determine, or a folder that cannot be written to.
    """
    path = Path(path)
    stored = links_to_write(path, links, lattice, precision)
    if rows not in DATATYPES:
        raise fault(path, f"cannot be written with {rows} rows per link", "give 2 or 3")
    if rows == 2 and not np.allclose(_third_row(links), links[..., 2, :], rtol=0, atol=THIRD_ROW_TOLERANCE):
        raise fault(path, "links that are not in SU(3) cannot be written with two rows", "write all three")
    with created(path) as file:
        encode_nersc(file, stored, lattice, path.stem, rows)


def encode_nersc(file: BinaryIO, links: NDArray, lattice: Lattice, label: str, rows: int = 3) -> None:
    """Write links complex64 or complex128 ``[mu, parity, site, 3, 3]`` into an open file in NERSC's format.

    label: the header's ENSEMBLE_LABEL.
    """
    field = np.moveaxis(links, 0, 2)[..., :rows, :]
    word = f">f{links.itemsize // 2}"
    partials = [
        NERSC.partial(raw, first_site, ">") for first_site, raw in encoded_slabs(field, lattice, word)
    ]
    file.write(_header_text(label, links, lattice, rows, NERSC.total(partials)[0]))
    for _, raw in encoded_slabs(field, lattice, word):
        file.write(raw.data)


def _third_row(links: NDArray) -> NDArray:
    """conj(row 1 x row 2) of links ``[..., 3, 3]``: their third row if they are in SU(3)."""
    a, b = links[..., 0, :], links[..., 1, :]
    after, before = [1, 2, 0], [2, 0, 1]
    return np.conj(a[..., after] * b[..., before] - a[..., before] * b[..., after])


def _header(path: Path) -> tuple[dict[str, str], int]:
    """The header's keys and values, and the byte at which the links begin."""
    with opened(path) as file:
        head = file.read(HEADER_LIMIT)
    match = re.search(rb"^END_HEADER[ \r]*\n", head, re.MULTILINE)
    if match is None:
        raise damaged(path, "truncated or damaged: its NERSC header has no END_HEADER")
    lines = head[: match.start()].decode("ascii", "replace").splitlines()
    header: dict[str, str] = {}
    for key, _, text in (line.partition("=") for line in lines if "=" in line):
        key, text = key.strip(), text.strip()
        if header.get(key, text) != text and READ.fullmatch(key):
            what = f"its header states {key} twice, as {header[key]} and as {text}"
            raise fault(path, what, "find out from its source which is right, and leave out the other line")
        header[key] = text
    return header, match.end()


def _integer(path: Path, header: dict[str, str], key: str) -> int:
    text = value(path, header, key)
    if not WHOLE_NUMBER.fullmatch(text):
        raise damaged(path, f"its header states {key} = {text}, which is no whole number")
    return int(text)


def _word(path: Path, floating_point: str, offset: int) -> str:
    """The dtype of a stored real."""
    match = re.fullmatch(r"IEEE(32|64)(BIG|LITTLE)?", floating_point.upper())
    if match is None:
        remedy = "IEEE32, IEEE32BIG, IEEE32LITTLE and the same with 64 can be read"
        raise fault(path, f"its header states FLOATING_POINT = {floating_point}", remedy)
    size = int(match[1]) // 8
    return f"{ORDERS[match[2]] if match[2] else _byte_order(path, offset, size)}f{size}"


def _byte_order(path: Path, offset: int, size: int) -> str:
    """The byte order in which the first row of the first link has unit length."""
    with opened(path) as file:
        file.seek(offset)
        row = file.read(6 * size)
    if len(row) < 6 * size:
        raise damaged(path, "truncated: it ends right after its header")

    def misfit(order: str) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            length = float((np.frombuffer(row, f"{order}f{size}").astype(float) ** 2).sum())
        return abs(length - 1) if math.isfinite(length) else math.inf

    return min("<>", key=misfit)


def _header_text(label: str, links: NDArray, lattice: Lattice, rows: int, checksum: int) -> bytes:
    lines = {
        "HDR_VERSION": "1.0",
        "STORAGE_FORMAT": "1.0",
        "DATATYPE": DATATYPES[rows],
        **{f"DIMENSION_{number}": str(extent) for number, extent in enumerate(lattice.extents, 1)},
        "CHECKSUM": f"{checksum:x}",
        "LINK_TRACE": f"{link_statistics(links).trace:.15f}",
        "PLAQUETTE": f"{plaquette(links, lattice).total:.15f}",
        **{f"BOUNDARY_{number}": "PERIODIC" for number in (1, 2, 3, 4)},
        "ENSEMBLE_ID": "quarkline",
        "ENSEMBLE_LABEL": label,
        "SEQUENCE_NUMBER": "0",
        "FLOATING_POINT": "IEEE32BIG" if links.dtype == np.complex64 else "IEEE64BIG",
    }
    body = "".join(f"{key} = {text}\n" for key, text in lines.items())
    return f"BEGIN_HEADER\n{body}END_HEADER\n".encode("ascii", "replace")
