"""Damaged, truncated and mislabelled files: one `InputError` that names file, fault and remedy."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.wilson_operator import smeared
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.lattice.formats import (
    check_gauge,
    read_extents,
    read_field,
    read_gauge,
    write_ildg,
    write_nersc,
)
from stages.lqcd.lattice.formats.gauge_file import UNVERIFIED
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import link_statistics, plaquette
from support import foreign_writers as foreign
from support.lexicographic import gauge_to_lexicographic
from support.refusals import refuses

FORMATS = ["ildg", "scidac", "nersc", "nersc2", "milc", "openqcd", "ddalphaamg"]
HEADER_BYTES = {
    "ildg": 2100,
    "scidac": 700,
    "nersc": 420,
    "nersc2": 420,
    "milc": 96,
    "openqcd": 24,
    "ddalphaamg": 24,
}

Healthy = Callable[[str], bytes]


@pytest.fixture(scope="module")
def healthy(links: NDArray, lattice: Lattice, tmp_path_factory: pytest.TempPathFactory) -> Healthy:
    """The bytes of a healthy file of each format."""
    folder = tmp_path_factory.mktemp("healthy")
    lexicographic = gauge_to_lexicographic(links, lattice)
    mean = plaquette(links, lattice).total
    write_ildg(folder / "ildg", links, lattice, 64)
    write_nersc(folder / "nersc", links, lattice, 64)
    write_nersc(folder / "nersc2", links, lattice, 32, rows=2)
    foreign.write_milc(folder / "milc", lexicographic, ">")
    foreign.write_openqcd(folder / "openqcd", lexicographic, mean)
    foreign.write_ddalphaamg(folder / "ddalphaamg", lexicographic, mean)
    data = foreign.ildg_data(lexicographic, 32)
    sums = foreign.scidac_checksum([data[i : i + 288] for i in range(0, len(data), 288)])
    (folder / "scidac").write_bytes(
        foreign.scidac_headers(lexicographic, 32)
        + foreign.lime_record("scidac-binary-data", data)
        + foreign.checksum_record(*sums)
    )
    return lambda name: (folder / name).read_bytes()


def refused(path: Path, content: bytes, message: str) -> None:
    """Reading raises one short error that begins with the file's name, matches `message` and has a remedy."""
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_gauge(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "; " in text and len(text) < 400 and "\n" not in text


@pytest.mark.parametrize("name", FORMATS)
def test_healthy_files_pass(tmp_path: Path, healthy: Healthy, name: str) -> None:
    (tmp_path / "a").write_bytes(healthy(name))
    assert check_gauge(tmp_path / "a").ok


@pytest.mark.parametrize("name", FORMATS)
def test_flipped_bit_in_the_links(tmp_path: Path, healthy: Healthy, name: str) -> None:
    content = bytearray(healthy(name))
    content[HEADER_BYTES[name] + len(content) // 2] ^= 0x10
    refused(tmp_path / "a", bytes(content), "should be .* found .*damaged or mislabelled")
    report = check_gauge(tmp_path / "a")
    assert not report.ok and report.failures and report.as_dict()["ok"] is False


@pytest.mark.parametrize("name", FORMATS)
def test_not_a_number_among_links_without_checksum(tmp_path: Path, healthy: Healthy, name: str) -> None:
    content = bytearray(healthy(name))
    middle = HEADER_BYTES[name] + len(content) // 2
    content[middle : middle + 64] = b"\xff" * 64
    (tmp_path / "a").write_bytes(bytes(content))
    report = check_gauge(tmp_path / "a")
    assert {check.name for check in report.failures} >= {"largest |U^dag U - 1|", "largest |det U - 1|"}
    assert report.as_dict()["plaquette"]["total"] is None


@pytest.mark.parametrize("name", FORMATS)
def test_truncated_anywhere(tmp_path: Path, healthy: Healthy, name: str) -> None:
    whole = healthy(name)
    rng = np.random.default_rng(404)
    for length in (1, 3, 4, 20, 23, 24, 80, 150, len(whole) - 8, *rng.integers(25, len(whole), 12)):
        refused(tmp_path / "a", whole[:length], "truncated|is not a gauge file|has no|gauge fields")
        with pytest.raises(InputError):
            read_extents(tmp_path / "a")


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_too_many(tmp_path: Path, healthy: Healthy, name: str) -> None:
    """Those after the last LIME record are told of where they cannot be one (`test_lime_files`)."""
    tail = struct.pack(">I4x", 0x456789AB) if name in ("ildg", "scidac") else b"\0" * 8
    refused(tmp_path / "a", healthy(name) + tail, "truncated|follow the header|is not a gauge file")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("positions", [50, pytest.param(None, marks=pytest.mark.slow)])
def test_a_flipped_header_bit_is_refused_or_harmless(tmp_path, healthy, name, positions):
    whole = healthy(name)
    (tmp_path / "a").write_bytes(whole)
    links = read_gauge(tmp_path / "a").links
    rng = np.random.default_rng(7)
    for position in rng.permutation(HEADER_BYTES[name])[:positions]:
        content = bytearray(whole)
        content[position] ^= 1 << int(rng.integers(8))
        (tmp_path / "a").write_bytes(bytes(content))
        try:
            assert (read_gauge(tmp_path / "a").links == links).all()
        except InputError as error:
            assert str(tmp_path / "a") in str(error)


@pytest.mark.parametrize(
    ("name", "offset", "layout"), [("milc", 4, ">i"), ("openqcd", 4, "<i"), ("ddalphaamg", 4, "<i")]
)
@pytest.mark.parametrize("extent", [3, 0, -4, 2**30, 6])
def test_wrong_extents_in_binary_headers(tmp_path, healthy, name, offset, layout, extent):
    content = bytearray(healthy(name))
    struct.pack_into(layout, content, offset, extent)
    refused(tmp_path / "a", bytes(content), "even numbers|bytes|is not a gauge file")


@pytest.mark.parametrize("text", ["3", "0", "8", "four", "1000000000000", "9" * 400])
def test_wrong_extents_in_text_headers(tmp_path: Path, healthy: Healthy, text: str) -> None:
    content = healthy("nersc").replace(b"DIMENSION_1 = 4", f"DIMENSION_1 = {text}".encode())
    refused(tmp_path / "a", content, "even numbers|truncated|no whole number")
    content = healthy("ildg").replace(b"<lx>4</lx>", f"<lx>{text}</lx>".encode())
    refused(tmp_path / "b", relabelled(content, "ildg-format"), "even numbers|bytes|no whole number")


def relabelled(content: bytes, kind: str) -> bytes:
    """A LIME file whose text record of that kind was edited, with its length and padding put right."""
    begin = content.index(kind.encode() + b"\0") - 16
    end = content.index(struct.pack(">I", 0x456789AB), begin + 4)
    payload = content[begin + 144 : end].rstrip(b"\0")
    return content[:begin] + foreign.lime_record(kind, payload) + content[end:]


OF_ILDG = [
    ("<lx>4</lx><ly>6</ly>", "<lx>6</lx><ly>4</ly>", "header states 6x4x2x8, its SciDAC header 4x6x2x8"),
    ("su3gauge", "su2gauge", "its ILDG header states <field> 'su2gauge'; fields of kind su3gauge can"),
    ("<precision>64", "<precision>32", "with 288 bytes per site takes 110592 bytes, its data have 221184"),
    ("<suma>", "<suma>z", "checksum record is unreadable|LIME"),
    ("suma>", "sume>", "lacks <suma>"),
]
TWICE = {"DIMENSION_4": "16", "CHECKSUM": "1", "DATATYPE": "4D_SU3_GAUGE"}
OF_NERSC = [
    ("IEEE64BIG", "IEEE32BIG", "110592 bytes, but 221184 follow the header"),
    *((key, "SOMETHING_ELSE", f"has no {key}; ") for key in ("DATATYPE", "DIMENSION_4", "FLOATING_POINT")),
    *(
        ("END_HEADER", f"{key} = {value}\nEND_HEADER", f"states {key} twice, as .* and as {value}; find")
        for key, value in TWICE.items()
    ),
]
"""What stands in a header, what takes its place, and what is said."""


@pytest.mark.parametrize(
    ("name", "change"), [*(("ildg", e) for e in OF_ILDG), *(("nersc", e) for e in OF_NERSC)], ids=str
)
def test_headers_that_contradict_themselves_or_lack_a_key(tmp_path, healthy, name, change):
    old, new, message = change
    refused(tmp_path / "a", healthy(name).replace(old.encode(), new.encode()), message)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("PLAQUETTE", "0.59", r"plaquette should be 0\.59, found -0\.0003911"),
        ("PLAQUETTE", "none", "plaquette should be 'none', which is no number, found"),
        ("LINK_TRACE", "nan", "should be 'nan', which is no number, found .*; the checksum is right"),
        ("LINK_TRACE", "0.3", r"link trace should be 0\.3, found"),
        ("CHECKSUM", "12345678", "NERSC checksum should be 12345678, found [0-9a-f]{8}"),
        ("CHECKSUM", "xyz", "no 32-bit hexadecimal number"),
        (
            "DATATYPE",
            "4D_SU2_GAUGE",
            "DATATYPE = 4D_SU2_GAUGE; 4D_SU3_GAUGE and 4D_SU3_GAUGE_3x3 can be read",
        ),
        ("FLOATING_POINT", "TIDSP32", "FLOATING_POINT = TIDSP32; IEEE32"),
        ("FLOATING_POINT", "IEEE64LITTLE", "checksum should be"),
    ],
)
def test_wrong_value_in_a_nersc_header(tmp_path, lattice, links, key, value, message):
    header = {
        "PLAQUETTE": f"{plaquette(links, lattice).total:.8f}",
        "LINK_TRACE": f"{link_statistics(links).trace:.8f}",
    }
    lexicographic = gauge_to_lexicographic(links, lattice)
    path = tmp_path / "a"
    foreign.write_nersc(
        path, lexicographic, "IEEE64BIG", ">", 8, 3, "4D_SU3_GAUGE_3x3", **(header | {key: value})
    )
    refused(path, path.read_bytes(), message)


@pytest.mark.parametrize(("key", "number"), [("PLAQUETTE", 0), ("LINK_TRACE", 1), ("CHECKSUM", 2)])
def test_optional_keys_of_a_nersc_header(tmp_path: Path, healthy: Healthy, key: str, number: int) -> None:
    """Some codes leave them out: what they would have verified is said in a note."""
    (path := tmp_path / "a").write_bytes(healthy("nersc").replace(key.encode(), b"SOMETHING_ELSE"))
    report = check_gauge(path)
    told = ["states nothing as plaquette", "states nothing as link trace", UNVERIFIED]
    assert report.ok and report.notes == (told[number],)


@pytest.mark.parametrize(
    ("plaquette_is", "trace_is", "said"),
    [
        ((3, 0), (0, 1), "the header has three times this number"),
        ((1 / 3, 0), (0, 1), "the header has a third of this number"),
        ((0, 1), (1, 0), "plaquette and link trace are exchanged in the header"),
    ],
)
def test_numbers_of_a_header_that_are_meant_otherwise(tmp_path, lattice, plaquette_is, trace_is, said):
    links = thermalised(lattice, 6.0, 3, "a", 1, 0)
    numbers = np.array([plaquette(links, lattice).total, link_statistics(links).trace])
    lexicographic = gauge_to_lexicographic(links, lattice)
    rows = {"PLAQUETTE": plaquette_is, "LINK_TRACE": trace_is}
    header = {key: f"{numbers @ row:.9f}" for key, row in rows.items()}
    foreign.write_nersc(tmp_path / "a", lexicographic, "IEEE64BIG", ">", 8, 3, "4D_SU3_GAUGE_3x3", **header)
    content = (tmp_path / "a").read_bytes()
    refused(tmp_path / "a", content, f"{said}; the checksum is right")
    refused(tmp_path / "a", content.replace(b"CHECKSUM", b"SOMETHING"), f"{said}; correct it there")


def test_a_boundary_in_a_nersc_header_is_a_note(tmp_path: Path, healthy: Healthy) -> None:
    content = healthy("nersc").replace(b"BOUNDARY_4 = PERIODIC", b"BOUNDARY_4 = ANTIPERIODIC")
    (path := tmp_path / "a").write_bytes(content)
    (note,) = check_gauge(path).notes
    assert note.startswith("states BOUNDARY_4 = ANTIPERIODIC: links are taken as stored")


@pytest.mark.parametrize(("name", "format_name"), [("openqcd", "openQCD"), ("ddalphaamg", "DDalphaAMG")])
def test_wrong_plaquette_without_magic(tmp_path: Path, healthy: Healthy, name: str, format_name: str) -> None:
    content = bytearray(healthy(name))
    (stated,) = struct.unpack_from("<d", content, 16)
    struct.pack_into("<d", content, 16, stated + 1e-8)
    refused(tmp_path / "a", bytes(content), f"{format_name}, 4x6x2x8: plaquette should be")


def test_wrong_checksums(tmp_path: Path, healthy: Healthy) -> None:
    content = healthy("ildg")
    begin = content.index(b"<sumb>") + 6
    digit = b"0" if content[begin : begin + 1] != b"0" else b"1"
    refused(tmp_path / "a", content[:begin] + digit + content[begin + 1 :], "SciDAC checksum b should be")
    refuses("SciDAC checksum b should be", read_field, tmp_path / "a")
    content = bytearray(healthy("milc"))
    content[92] ^= 1
    refused(tmp_path / "a", bytes(content), "MILC checksum sum31 should be")


def test_broken_chain_of_lime_records(tmp_path: Path, healthy: Healthy) -> None:
    content = bytearray(healthy("ildg"))
    second = content.index(struct.pack(">I", 0x456789AB), 8)
    content[second] ^= 0xFF
    refused(
        tmp_path / "a",
        bytes(content),
        f"byte {second} should begin a LIME record with 0x456789ab, found 0xba67",
    )


def test_lime_files_without_exactly_one_gauge_field(tmp_path: Path, healthy: Healthy) -> None:
    refused(
        tmp_path / "a", foreign.lime_record("text", b"hello"), r"with 0 gauge fields \(its records: text\)"
    )
    refused(tmp_path / "a", healthy("scidac") * 2, "with 2 gauge fields .*use a file of one gauge field")
    data = foreign.lime_record("ildg-binary-data", bytes(576))
    refused(tmp_path / "a", data, "without an 'ildg-format' record")
    open_tags = foreign.lime_record("ildg-format", b"<lx " * 250_000)
    refused(tmp_path / "a", open_tags + data, "lacks <lx>")
    content = healthy("scidac").replace(b"<precision>F", b"<precision>D")
    refused(tmp_path / "a", content, "0 gauge fields: it states type .*, precision D, 4 data of 72 bytes per")


def test_scidac_records_that_cannot_be_read(tmp_path: Path, links: NDArray, lattice: Lattice) -> None:
    lexicographic = gauge_to_lexicographic(links, lattice)
    data = foreign.lime_record("scidac-binary-data", foreign.ildg_data(lexicographic, 64))
    header = foreign.scidac_headers(lexicographic, 64)
    refused(
        tmp_path / "a",
        foreign.scidac_headers(lexicographic, 64, volfmt=1) + data,
        "spread over several files",
    )
    for before, after, message in (
        (b"<typesize>144", b"<typesize>192", "type None with 192 bytes per datum; fields of colour matrices"),
        (b"<precision>D", b"<precision>Q", "type None with 144 bytes per datum; fields of colour matrices"),
        (b"<recordtype>0", b"<recordtype>2", "global or hypercube data"),
    ):
        refused(tmp_path / "a", header.replace(before, after) + data, "with 0 gauge fields")
        refuses(message, read_field, tmp_path / "a")


def test_milc_checkpoint_by_nodes(tmp_path: Path, healthy: Healthy) -> None:
    content = bytearray(healthy("milc"))
    struct.pack_into(">i", content, 84, 1)
    refused(tmp_path / "a", bytes(content), "site order 1: a checkpoint by nodes; save it in serial")


def test_boundary_sign_or_phases_in_the_links(tmp_path: Path, links: NDArray, lattice: Lattice) -> None:
    antiperiodic = links.copy()
    last = lattice.coordinates(0)[:, 3] == lattice.time_extent - 1
    antiperiodic[3, :, last] *= -1
    write_ildg(tmp_path / "a", antiperiodic, lattice, 64)
    content = (tmp_path / "a").read_bytes()
    refused(
        tmp_path / "a",
        content,
        r"largest \|det U - 1\| should be at most 0.001, found 2; use thin links without",
    )


def test_damaged_links_and_smeared_ones(tmp_path: Path, links: NDArray, lattice: Lattice) -> None:
    """Of either the remedy is another one: to fetch the file again, or to take another file."""
    damage, fat = links.copy(), 1.1 * links
    damage[2, 1, 7, 0] *= 1e9
    for field, remedy in ((damage, "the file is damaged"), (fat, "use thin links without phases")):
        write_ildg(tmp_path / "a", field, lattice, 64)
        refused(tmp_path / "a", (tmp_path / "a").read_bytes(), rf"\|U\^dag U - 1\| should be .*; {remedy}")


def test_an_open_boundary(tmp_path: Path, links: NDArray, lattice: Lattice) -> None:
    """Wilson quarks that end at the last slice read it, and nothing else does."""
    field = links.copy()
    field[3, :, -lattice.sites_per_slice :] = 0
    write_ildg(tmp_path / "a", field, lattice, 64)
    with pytest.warns(UserWarning, match="has an open boundary: its links that leave the last"):
        read = read_gauge(tmp_path / "a")
    assert read.ok and read.statistics.trace == pytest.approx(link_statistics(field).trace)
    expected = wilson_links(links, lattice, boundary="dirichlet").links
    np.testing.assert_array_equal(wilson_links(read.links, lattice, boundary="dirichlet").links, expected)
    for spatial in (True, False):  # a staple through links that are not there adds nothing
        stout = smeared(
            GaugeLinks(read.links.copy(), np.array(lattice.extents)), "cpu", rho=0.1, steps=1, spatial=spatial
        )
        assert np.isfinite(stout).all() and not stout[3, :, -lattice.sites_per_slice :].any()
        wilson_links(stout, lattice, boundary="dirichlet")
    for refusing in (wilson_links, hisq_links):
        options = {"naik_epsilon": 0.0} if refusing is hisq_links else {}
        with pytest.raises(InputError, match=r"open boundary .* take with boundary: dirichlet"):
            refusing(read.links, lattice, boundary="antiperiodic", **options)
    write_ildg(tmp_path / "b", 0 * links, lattice, 64)
    assert not check_gauge(tmp_path / "b").notes  # where all links are zero, nothing is open
    field[3, 0, -1, 0, 0] = 1  # one of them is not
    write_ildg(tmp_path / "a", field, lattice, 64)
    refused(tmp_path / "a", (tmp_path / "a").read_bytes(), "the file is damaged")


BIG_ENDIAN = struct.pack(">4id", 2, 2, 2, 2, 1.5) + bytes(16 * 4 * 144)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x1f\x8b\x08" + bytes(50), "is compressed; unpack it first: gunzip a"),
        (b"BZh9" + bytes(50), "is compressed; unpack it first: bunzip2 a"),
        (b"\x1f\x9d" + bytes(50), "is compressed; unpack it first: uncompress a"),
        (b"PK\3\4" + bytes(50), "is compressed; unpack it first: unzip a"),
        (b"conf.0100".ljust(257, b"\0") + b"ustar" + bytes(250), "is a tar archive; .* tar -xf a"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS, .* git lfs pull"),
        (struct.pack("<i", 59354) + bytes(90), "is a file of MILC versions 1 to 4; convert it by MILC"),
        (struct.pack(">i", 53546) + bytes(90), "is a file of MILC of 1996; convert it by MILC"),
        (BIG_ENDIAN, "big-endian byte order, and little-endian is read; reverse the bytes of the four"),
    ],
)
def test_formats_that_are_known_and_not_read(tmp_path: Path, content: bytes, told: str) -> None:
    refused(tmp_path / "a", content, told)


@pytest.mark.parametrize(
    "content", [b"ensemble:\n  files: confs/*.ildg\n", b"# notes\n", bytes(range(256)) * 8, b"\0" * 4096]
)
def test_files_that_are_something_else(tmp_path: Path, content: bytes) -> None:
    refused(
        tmp_path / "a", content, "is not a gauge file in any known format .*; ILDG, SciDAC, NERSC, MILC v5,"
    )


def test_what_is_no_readable_file(tmp_path: Path) -> None:
    refused(tmp_path / "a", b"", "the file is empty")
    for read in (read_gauge, check_gauge, read_extents, read_field):
        refuses("nowhere: no such file; check the name", read, tmp_path / "nowhere")
        refuses("this is a folder; name a gauge-field file", read, tmp_path)


def test_no_permission(tmp_path: Path, healthy: Healthy) -> None:
    path = tmp_path / "a"
    path.write_bytes(healthy("nersc"))
    path.chmod(0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # root may read anything
        refuses("a: no permission to read it; ask its owner", read_gauge, path)
    finally:
        os.seteuid(user)
