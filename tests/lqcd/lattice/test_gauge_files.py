"""Every format, precision and byte order: links written by other codes and by us are read bit by bit."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.lattice.formats import (
    check_gauge,
    read_extents,
    read_field,
    read_gauge,
    write_ildg,
    write_milc,
    write_nersc,
)
from stages.lqcd.lattice.formats.conversion import convert_gauge
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import link_statistics, plaquette
from support import foreign_writers as foreign
from support.lexicographic import gauge_to_lexicographic, gauge_to_parity, to_lexicographic
from support.refusals import refuses

DTYPES = {32: np.complex64, 64: np.complex128}


@pytest.fixture(scope="module")
def lexicographic(links: NDArray, lattice: Lattice) -> NDArray:
    return gauge_to_lexicographic(links, lattice)


@pytest.fixture(scope="module")
def stated(links: NDArray, lattice: Lattice) -> dict[str, str]:
    """Plaquette and link trace as a NERSC header prints them."""
    return {
        "PLAQUETTE": f"{plaquette(links, lattice).total:.10f}",
        "LINK_TRACE": f"{link_statistics(links).trace:.10f}",
    }


def assert_links(path: Path, links: NDArray, lattice: Lattice, precision: int, format_name: str) -> None:
    field = read_gauge(path)
    assert (field.format, field.lattice, field.precision) == (format_name, lattice, precision)
    assert field.links.dtype == DTYPES[precision]
    assert (field.links == links.astype(DTYPES[precision])).all()
    assert read_extents(path) == lattice


@pytest.mark.parametrize("precision", [32, 64])
def test_write_ildg_and_read(tmp_path: Path, links: NDArray, lattice: Lattice, precision: int) -> None:
    write_ildg(tmp_path / "a.ildg", links, lattice, precision)
    assert_links(tmp_path / "a.ildg", links, lattice, precision, "ILDG")
    assert [check.name for check in read_gauge(tmp_path / "a.ildg").checksums] == [
        "SciDAC checksum a",
        "SciDAC checksum b",
    ]
    assert (read_field(tmp_path / "a.ildg").values == links.astype(DTYPES[precision])).all()


@pytest.mark.parametrize("precision", [32, 64])
def test_written_ildg_holds_the_data_and_checksum_of_the_format(
    tmp_path, links, lexicographic, lattice, precision
):
    write_ildg(tmp_path / "a.ildg", links, lattice, precision)
    data = foreign.ildg_data(lexicographic, precision)
    site = len(data) // lattice.volume
    a, b = foreign.scidac_checksum([data[i : i + site] for i in range(0, len(data), site)])
    whole = (tmp_path / "a.ildg").read_bytes()
    assert data in whole and len(whole) % 8 == 0
    assert f"<suma>{a:x}</suma><sumb>{b:x}</sumb>".encode() in whole
    assert f"<precision>{precision}</precision><lx>4</lx><ly>6</ly><lz>2</lz><lt>8</lt>".encode() in whole


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("precision", [32, 64])
def test_write_nersc_and_read(tmp_path, links, lattice, precision, rows):
    write_nersc(tmp_path / "a", links, lattice, precision, rows)
    field = read_gauge(tmp_path / "a")
    assert (field.format, field.lattice, field.precision) == ("NERSC", lattice, precision)
    assert (field.links[..., :rows, :] == links[..., :rows, :].astype(DTYPES[precision])).all()
    np.testing.assert_allclose(field.links, links, atol=1e-6 if precision == 32 else 1e-15)
    assert [check.name for check in field.checks][:3] == ["NERSC checksum", "plaquette", "link trace"]


@pytest.mark.parametrize(
    ("floating_point", "order"),
    [
        ("IEEE32BIG", ">"),
        ("IEEE32LITTLE", "<"),
        ("IEEE32", ">"),
        ("IEEE32", "<"),
        ("IEEE64BIG", ">"),
        ("IEEE64LITTLE", "<"),
        ("IEEE64", ">"),
        ("IEEE64", "<"),
    ],
)
@pytest.mark.parametrize(
    ("rows", "datatype"), [(2, "4D_SU3_GAUGE"), (3, "4D_SU3_GAUGE_3x3"), (3, "4D_SU3_GAUGE_3X3")]
)
def test_read_nersc(tmp_path, links, lexicographic, lattice, stated, floating_point, order, rows, datatype):
    precision = int(floating_point[4:6])
    foreign.write_nersc(
        tmp_path / "a", lexicographic, floating_point, order, precision // 8, rows, datatype, **stated
    )
    field = read_gauge(tmp_path / "a")
    assert (field.links[..., :rows, :] == links[..., :rows, :].astype(DTYPES[precision])).all()
    np.testing.assert_allclose(field.links, links, atol=1e-6 if precision == 32 else 1e-15)
    assert field.precision == precision and field.metadata["DATATYPE"] == datatype
    assert read_extents(tmp_path / "a") == lattice


def test_write_milc_as_the_format_is_described(tmp_path, links, lattice, lexicographic):
    write_milc(tmp_path / "a", links, lattice)
    assert_links(tmp_path / "a", links, lattice, 32, "MILC v5")
    foreign.write_milc(tmp_path / "b", lexicographic, "<")
    written, expected = (tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()
    assert written[:20] == expected[:20] and written[84:] == expected[84:]
    refuses("are not those of a 4x4x4x4 lattice", write_milc, tmp_path / "a", links, Lattice((4, 4, 4, 4)))


@pytest.mark.parametrize("target", ["a.ildg", "a.nersc", "a.milc"])
@pytest.mark.parametrize("format_name", ["openQCD", "DDalphaAMG"])
def test_formats_without_magic_are_converted(tmp_path, links, lattice, lexicographic, format_name, target):
    write = {"openQCD": foreign.write_openqcd, "DDalphaAMG": foreign.write_ddalphaamg}[format_name]
    write(tmp_path / "a", lexicographic, plaquette(links, lattice).total)
    conversion = convert_gauge(tmp_path / "a", tmp_path / target)
    assert conversion.source.format == format_name
    precision, name = {"a.ildg": (64, "ILDG"), "a.nersc": (64, "NERSC"), "a.milc": (32, "MILC v5")}[target]
    assert_links(tmp_path / target, links, lattice, precision, name)


@pytest.mark.parametrize("order", ["<", ">"])
def test_read_milc(tmp_path, links, lexicographic, lattice, order):
    foreign.write_milc(tmp_path / "a", lexicographic, order)
    assert_links(tmp_path / "a", links, lattice, 32, "MILC v5")
    assert read_gauge(tmp_path / "a").metadata == {"time stamp": "Tue Nov 20 01:02:03 2018"}


@pytest.mark.parametrize("extents", [(4, 6, 2, 8), (4, 2, 6, 2), (4, 2, 4, 2)])
@pytest.mark.parametrize("format_name", ["openQCD", "DDalphaAMG"])
def test_formats_without_magic_are_told_apart_by_their_links(tmp_path, extents, format_name):
    lattice = Lattice(extents)
    rng = np.random.default_rng(622)
    phases = np.exp(1j * rng.uniform(-1, 1, (4, 2, lattice.half_volume, 2)))
    diagonal = np.concatenate([phases, 1 / phases.prod(-1, keepdims=True)], axis=-1)
    links = diagonal[..., None] * np.eye(3)
    write = {"openQCD": foreign.write_openqcd, "DDalphaAMG": foreign.write_ddalphaamg}[format_name]
    write(tmp_path / "a", gauge_to_lexicographic(links, lattice), plaquette(links, lattice).total)
    assert_links(tmp_path / "a", links, lattice, 64, format_name)


@pytest.mark.parametrize("format_name", ["openQCD", "DDalphaAMG"])
def test_general_links_of_formats_without_magic(tmp_path, links, lexicographic, lattice, format_name):
    write = {"openQCD": foreign.write_openqcd, "DDalphaAMG": foreign.write_ddalphaamg}[format_name]
    write(tmp_path / "a", lexicographic, plaquette(links, lattice).total)
    assert_links(tmp_path / "a", links, lattice, 64, format_name)


@pytest.mark.parametrize("precision", [32, 64])
def test_ildg_without_scidac_records_or_checksum(tmp_path, links, lexicographic, lattice, precision):
    data = foreign.lime_record("ildg-binary-data", foreign.ildg_data(lexicographic, precision))
    (tmp_path / "a").write_bytes(foreign.ildg_format(lexicographic, precision) + data)
    with pytest.warns(UserWarning, match="a: has no checksum record: whether its numbers"):
        assert_links(tmp_path / "a", links, lattice, precision, "ILDG")
    assert check_gauge(tmp_path / "a").ok and len(check_gauge(tmp_path / "a").notes) == 1


def test_a_record_of_unknown_type_in_place_of_the_checksum(tmp_path: Path, lexicographic: NDArray) -> None:
    """One flipped bit in the type of the record: it is no checksum any more."""
    data, links = foreign.ildg_data(lexicographic, 32), foreign.scidac_headers(lexicographic, 32)
    content = links + foreign.lime_record("scidac-binary-data", data) + foreign.checksum_record(1, 2)
    (tmp_path / "a").write_bytes(content.replace(b"scidac-checksum", b"scidac-checksul"))
    with pytest.warns(UserWarning, match="a: has no checksum record"):
        assert read_field(tmp_path / "a").notes


def test_gauge_field_among_other_messages(tmp_path, links, lexicographic, lattice):
    """A vector field with its checksum before, a propagator after, records of unknown kinds around them."""
    vector = np.random.default_rng(31).normal(size=(lattice.volume, 3, 2)).view(complex)
    vector_data = b"".join(foreign.reals(site, ">", 8) for site in vector)
    data = foreign.ildg_data(lexicographic, 64)
    checksums = [
        foreign.checksum_record(*foreign.scidac_checksum([d[i : i + n] for i in range(0, len(d), n)]))
        for d, n in ((vector_data, 48), (data, 576))
    ]
    (tmp_path / "a").write_bytes(
        foreign.lime_record("some-unknown-record", b"with 17 bytes of.", 0xC000)
        + foreign.scidac_headers(lexicographic, 64, datum_reals=6, count=1)
        + foreign.lime_record("scidac-binary-data", vector_data)
        + checksums[0]
        + foreign.scidac_headers(lexicographic, 64)
        + foreign.lime_record("scidac-binary-data", data)
        + checksums[1]
        + foreign.scidac_headers(lexicographic, 64, datum_reals=288, count=1)
        + foreign.lime_record("scidac-binary-data", bytes(288 * 8 * lattice.volume))
        + foreign.lime_record("xlf-info", b"plaquette = 0.5", 0xC000)
    )
    assert_links(tmp_path / "a", links, lattice, 64, "SciDAC")
    assert len(read_gauge(tmp_path / "a").checksums) == 2
    values = read_field(tmp_path / "a", record=0).values
    assert (to_lexicographic(values, lattice).reshape(-1, 3) == vector[..., 0]).all()
    assert (read_field(tmp_path / "a", record=1).values == links).all()
    refuses("has 3 SciDAC fields, number 3 was asked for", read_field, tmp_path / "a", record=3)


def test_links_counted_as_36_complex_numbers(tmp_path, links, lexicographic, lattice):
    header = foreign.scidac_headers(lexicographic, 64, datum_reals=2, count=36)
    data = foreign.ildg_data(lexicographic, 64)
    (tmp_path / "a").write_bytes(header + foreign.lime_record("scidac-binary-data", data))
    assert_links(tmp_path / "a", links, lattice, 64, "SciDAC")
    ildg = foreign.ildg_format(lexicographic, 64) + foreign.lime_record("ildg-binary-data", data)
    (tmp_path / "b").write_bytes(header + ildg)
    assert_links(tmp_path / "b", links, lattice, 64, "ILDG")


@pytest.mark.parametrize(("shift", "ok"), [(0.0, True), (1e-5, False)])
def test_plaquette_and_trace_of_a_usqcd_record(tmp_path, links, lexicographic, lattice, shift, ok):
    record = (
        f"<usqcdInfo><version>1.0</version><plaq>{plaquette(links, lattice).total + shift:e}</plaq>"
        f"<linktr>{link_statistics(links).trace:e}</linktr><info>a < b & c</info></usqcdInfo>"
    )
    (tmp_path / "a").write_bytes(
        foreign.scidac_headers(lexicographic, 32)
        + foreign.lime_record("scidac-record-xml", record.encode())
        + foreign.lime_record("scidac-binary-data", foreign.ildg_data(lexicographic, 32))
    )
    report = check_gauge(tmp_path / "a")
    assert {check.name: check.ok for check in report.checks if check.name in ("plaquette", "link trace")} == {
        "plaquette": ok,
        "link trace": True,
    }


def test_report_in_json(tmp_path: Path, links: NDArray, lattice: Lattice) -> None:
    write_nersc(tmp_path / "a", links, lattice, 64)
    report = json.loads(json.dumps(check_gauge(tmp_path / "a").as_dict(), allow_nan=False))
    assert report["ok"] is True and report["lattice"] == [4, 6, 2, 8] and report["precision"] == 64
    assert report["plaquette"]["total"] == plaquette(links, lattice).total
    assert report["unitarity_deviation"] < 1e-14
    assert report["checks"][1]["name"] == "plaquette" and report["checks"][1]["ok"] is True


def test_writing_replaces_a_file_at_once_and_leaves_nothing_else(tmp_path, links, lattice, monkeypatch):
    write_ildg(tmp_path / "a", links, lattice, 32)
    before = (tmp_path / "a").read_bytes()

    def disk_full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", disk_full)
    for write in (write_ildg, write_nersc):
        with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
            write(tmp_path / "a", links[::-1], lattice, 64)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == before


@pytest.mark.parametrize("write", [write_ildg, write_nersc])
def test_bad_arguments_for_writing(tmp_path, links, lattice, write):
    refuses("precision of 16 bits; give 32 or 64", write, tmp_path / "a", links, lattice, 16)
    refuses("are not those of a 4x4x4x4 lattice", write, tmp_path / "a", links, Lattice((4, 4, 4, 4)), 64)
    refuses("nowhere/a: cannot be written", write, tmp_path / "nowhere" / "a", links, lattice, 64)
    assert list(tmp_path.iterdir()) == []


def test_two_rows_are_refused_for_links_outside_su3(tmp_path: Path, links: NDArray, lattice: Lattice) -> None:
    antiperiodic = links.copy()
    antiperiodic[3, 0, -1] *= -1
    refuses("not in SU", write_nersc, tmp_path / "a", antiperiodic, lattice, 64, rows=2)
    refuses("rows", write_nersc, tmp_path / "a", links, lattice, 64, rows=4)


def test_large_rows_and_many_slabs(tmp_path: Path, random_su3: Callable[..., NDArray]) -> None:
    """A field of several slabs, none a whole number of time slices."""
    lattice = Lattice((6, 10, 14, 4))
    links = random_su3((4, 2, lattice.half_volume), 4711)
    write_ildg(tmp_path / "a", links, lattice, 64)
    assert (tmp_path / "a").stat().st_size > 1.5 * 2**20
    assert_links(tmp_path / "a", links, lattice, 64, "ILDG")
    lexicographic = gauge_to_lexicographic(links, lattice)
    assert (gauge_to_parity(lexicographic, lattice) == links).all()
    foreign.write_openqcd(tmp_path / "b", lexicographic, plaquette(links, lattice).total)
    assert_links(tmp_path / "b", links, lattice, 64, "openQCD")
