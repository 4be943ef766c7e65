"""Files written by MILC, Chroma and DDalphaAMG: the numbers that those codes print for them."""

from pathlib import Path

import numpy as np
import pytest

from stages.lqcd.lattice.formats import check_gauge, read_extents, read_field, read_gauge
from support.lexicographic import gauge_to_lexicographic, to_lexicographic

Expected = dict[str, dict]

MILC = {"l4444": (4, 4, 4, 4), "l4448": (4, 4, 4, 8), "l8888": (8, 8, 8, 8), "l8": (8, 8, 8, 8)}
SAME_FIELD = [
    ("lat.sample.l4444", "lat.sample.l4444.ildg"),
    ("lat.sample.l4444", "lat.sample.l4444.scidac"),
    ("lat.sample.l4448", "lat.sample.l4448.scidac"),
]


def milc_checksum(links):
    """What MILC prints as a field's NERSC checksum: that of its links' first two rows in single precision."""
    rows = np.ascontiguousarray(links[..., :2, :], dtype=np.complex64)
    return int(rows.view(np.uint32).sum(dtype=np.uint64) & 0xFFFFFFFF)


@pytest.mark.parametrize("name", MILC)
def test_milc_plaquette_trace_and_checksums(reference_data: Path, expected: Expected, name: str) -> None:
    entry = expected[f"plaq:milc/lat.sample.{name}"]
    values, rtol = entry["values"], entry["rtol"]
    field = read_gauge(reference_data / entry["files"][0])
    assert field.lattice.extents == MILC[name]
    np.testing.assert_allclose(3 * field.plaquette.spatial, values["ss"], rtol=rtol)
    np.testing.assert_allclose(3 * field.plaquette.temporal, values["st"], rtol=rtol)
    np.testing.assert_allclose(field.statistics.trace, values["linktr"], rtol=rtol)
    assert milc_checksum(field.links) == int(values["nersc_cksum"], 16)
    found = [int(str(check.found), 16) for check in field.checksums]
    assert found == [int(word, 16) for word in values["file_checksum"]]


@pytest.mark.parametrize("name", ["weak_field", "t_nersc", "ddalphaamg8", "ddalphaamg4"])
def test_plaquette_trace_and_checksum(reference_data: Path, expected: Expected, name: str) -> None:
    entry = expected[f"plaq:{name}"]
    values, rtol = entry["values"], entry["rtol"]
    report = check_gauge(reference_data / entry["files"][0])
    np.testing.assert_allclose(report.plaquette.total, values["w_plaq"], rtol=rtol)
    if "link" in values:
        np.testing.assert_allclose(report.link_trace, values["link"], rtol=rtol)
    found = [check.found for check in report.checks if "checksum" in check.name]
    assert found == values.get("scidac", [values["checksum"]] if "checksum" in values else [])
    assert report.ok


def test_every_plaquette_entry_is_covered(expected: Expected) -> None:
    ours = {f"plaq:milc/lat.sample.{name}" for name in MILC}
    ours |= {f"plaq:{name}" for name in ("weak_field", "t_nersc", "ddalphaamg8", "ddalphaamg4")}
    assert {name for name in expected if name.startswith("plaq:")} == ours


@pytest.mark.parametrize(("one", "other"), SAME_FIELD)
def test_the_same_field_in_two_formats_is_equal_bit_by_bit(reference_data, one, other):
    a, b = (read_gauge(reference_data / "milc" / name) for name in (one, other))
    assert a.links.dtype == b.links.dtype == np.complex64
    assert (a.links == b.links).all()
    assert a.format != b.format


def test_links_are_where_the_format_puts_them(reference_data: Path) -> None:
    field = read_gauge(reference_data / "milc/lat.sample.l4448")
    stored = np.fromfile(reference_data / "milc/lat.sample.l4448", ">c8", offset=96).reshape(
        8, 4, 4, 4, 4, 3, 3
    )
    assert (gauge_to_lexicographic(field.links, field.lattice) == stored).all()


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("milc/lat.sample.l4444", "MILC v5"),
        ("milc/lat.sample.l4444.ildg", "ILDG"),
        ("milc/lat.sample.l8", "SciDAC"),
        ("chroma/weak_field.lime", "ILDG"),
        ("chroma/t_nersc.cfg", "NERSC"),
        ("ddalphaamg/8x8x8x8b6.0000id3n1", "DDalphaAMG"),
    ],
)
def test_format_and_extents(reference_data: Path, name: str, format_name: str) -> None:
    field = read_gauge(reference_data / name)
    assert field.format == format_name
    assert read_extents(reference_data / name) == field.lattice


@pytest.mark.parametrize("name", ["fat.l8", "long.l8"])
def test_scidac_colour_matrices(reference_data: Path, name: str) -> None:
    field = read_field(reference_data / "milc" / name)
    assert field.values.shape == (4, 2, 2048, 3, 3) and field.values.dtype == np.complex64
    assert [check.ok for check in field.checks] == [True, True]
    assert name.split(".")[0] in field.description.lower()


def test_scidac_colour_vector(reference_data: Path) -> None:
    path = reference_data / "milc/ksvector.src.sample.l8"
    field = read_field(path)
    assert field.values.shape == (2, 2048, 3, 1)
    data = path.read_bytes()
    begin = data.index(b"scidac-binary-data") + 128
    stored = np.frombuffer(data, ">c8", 3 * field.lattice.volume, begin).reshape(8, 8, 8, 8, 3)
    assert (to_lexicographic(field.values[..., 0], field.lattice) == stored).all()
    assert [check.ok for check in field.checks] == [True, True]


def test_smeared_links_are_no_gauge_field(reference_data: Path) -> None:
    report = check_gauge(reference_data / "milc/fat.l8")
    assert not report.ok
    assert [check.name for check in report.failures] == ["largest |U^dag U - 1|", "largest |det U - 1|"]
