"""LIME files of other writers: bytes after the last record, and the plaquette that tmLQCD states."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.errors import InputError
from stages.lqcd.gauge.reunitarise import polar_su3
from stages.lqcd.lattice.formats import check_gauge, lime, read_field, read_gauge, write_ildg
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import plaquette

LATTICE = Lattice((2, 2, 2, 4))


@pytest.fixture(scope="module")
def links() -> NDArray:
    rng, shape = np.random.default_rng(417), (4, 2, LATTICE.half_volume, 3, 3)
    return polar_su3(rng.normal(size=shape) + 1j * rng.normal(size=shape) + 2 * np.eye(3))


@pytest.fixture
def file(tmp_path: Path, links: NDArray) -> Path:
    write_ildg(tmp_path / "conf.ildg", links, LATTICE, 64)
    return tmp_path / "conf.ildg"


@pytest.mark.parametrize(("stray", "told"), [(b"\n", "1 stray byte"), (b"\0" * 143, "143 stray bytes")])
def test_stray_bytes_are_a_warning(file: Path, links: NDArray, stray: bytes, told: str) -> None:
    file.write_bytes(file.read_bytes() + stray)
    with pytest.warns(UserWarning, match=f"conf.ildg: has {told} after its last record"):
        field = read_gauge(file)
    np.testing.assert_array_equal(field.links, links)
    report = check_gauge(file)
    assert report.ok and report.notes == (f"has {told} after its last record",)
    with pytest.warns(UserWarning, match=told):
        assert read_field(file).notes == report.notes


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (lime.HEADER.pack(lime.MAGIC, 1, 0, 8, b"more")[:1], "truncated: it ends at byte"),
        (lime.HEADER.pack(lime.MAGIC, 1, 0, 8, b"more")[:100], "amid a LIME header"),
        (b"\0" * 144, "should begin a LIME record"),
    ],
    ids=["a byte of a header", "most of a header", "no header"],
)
def test_what_may_be_a_record_is_damage(file: Path, rest: bytes, said: str) -> None:
    file.write_bytes(file.read_bytes() + rest)
    with pytest.raises(InputError, match=said):
        read_gauge(file)


def test_a_file_without_stray_bytes_is_read_in_silence(file: Path) -> None:
    with warnings.catch_warnings(action="error"):
        assert read_gauge(file).notes == ()


def described(file: Path, text: str) -> Path:
    """The file with tmLQCD's record before all others."""
    content, path = file.read_bytes(), file.with_name("conf.tm")
    with open(path, "wb") as out:
        lime.write_record(out, "xlf-info", text.encode(), lime.BEGIN | lime.END)
        out.write(content)
    return path


TEXT = "\n plaquette = {}\n trajectory nr = 40\n beta = 3.9, kappa = 0.160856, mu = 0.004\n date = Mon\n\0"


@pytest.mark.parametrize("shown", ["{:.15e}", "{:f}", "{:.3f}"])
def test_the_plaquette_of_tmlqcd(file: Path, links: NDArray, shown: str) -> None:
    """To the digits given."""
    value = plaquette(links, LATTICE).total
    path = described(file, TEXT.format(shown.format(value)))
    field = read_gauge(path)
    (check,) = (check for check in field.checks if check.name == "plaquette")
    assert check.ok and "kappa = 0.160856" in field.metadata["xlf-info"]
    unit = 10.0 ** -len(shown.format(value).partition("e")[0].partition(".")[2])
    wrong = described(file, TEXT.format(shown.format(value + 1.5 * unit * (1 if unit > 1e-9 else 1e6))))
    with pytest.raises(InputError) as error:
        read_gauge(wrong)
    assert "plaquette should be " in str(error.value) and f"found {value:.10g}" in str(error.value)
    assert not check_gauge(wrong).ok


def test_a_plaquette_that_is_no_number(file: Path) -> None:
    with pytest.raises(InputError, match="states 'none' as plaquette, which is no number"):
        read_gauge(described(file, TEXT.format("none")))


def test_a_published_file_with_a_stray_byte(reference_data: Path) -> None:
    with pytest.warns(UserWarning, match="1 stray byte after its last record"):
        fat = read_field(reference_data / "hvp" / "fat4444a.ildg.20")
    assert fat.values.shape == (4, 2, 128, 3, 3) and np.isfinite(fat.values).all()
