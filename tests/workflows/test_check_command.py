"""`quarkline check` on good and damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_project import CommandLine

from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.formats import write_ildg, write_nersc
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import plaquette

LATTICE = Lattice((4, 4, 4, 6))


@pytest.fixture
def links() -> np.ndarray:
    return thermalised(LATTICE, 6.0, 311, "check", 2, 1)


@pytest.fixture
def good(tmp_path: Path, links: np.ndarray) -> list[Path]:
    """The same field as ILDG and NERSC."""
    paths = [tmp_path / "good.ildg", tmp_path / "good.nersc"]
    write_ildg(paths[0], links, LATTICE, 64)
    write_nersc(paths[1], links, LATTICE, 64)
    return paths


@pytest.fixture
def bad(tmp_path: Path, good: list[Path]) -> list[Path]:
    """A truncated file, one with a flipped bit, one that is something else, one that is not there."""
    content = good[0].read_bytes()
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    contents = {"short.ildg": content[:-5000], "flipped.ildg": bytes(flipped), "other.ildg": b"not a field"}
    for name, part in contents.items():
        (tmp_path / name).write_bytes(part)
    return [tmp_path / name for name in (*contents, "absent.ildg")]


def test_good_files(quarkline: CommandLine, good: list[Path], links: np.ndarray) -> None:
    answer = quarkline("check", *good)
    assert answer.code == 0 and answer.err == ""
    total, spatial, temporal = plaquette(links, LATTICE)
    line = f"plaquette    {total:.10f} (spatial {spatial:.10f}, temporal {temporal:.10f})"
    assert answer.out.count(line) == 2
    assert "good.ildg: ILDG, 4x4x4x6, 64 bit" in answer.out
    assert "good.nersc: NERSC, 4x4x4x6, 64 bit" in answer.out
    assert "verified     NERSC checksum, plaquette (15 digits), link trace (15 digits)" in answer.out


def test_bad_files_are_one_error_each_and_the_rest_is_checked(quarkline, good, bad):
    answer = quarkline("check", *bad, *good)
    assert answer.code == 2 and "Traceback" not in answer.err
    errors = answer.err.strip().splitlines()
    assert len(errors) == len(bad)
    for error, path in zip(errors, bad, strict=True):
        assert error.startswith(f"error: {path}: ")
    assert "truncated" in errors[0] and "checksum" in errors[1] and "no such file" in errors[3]
    assert "good.nersc: NERSC" in answer.out

    answer = quarkline("check", "--json", bad[0], good[0], bad[1])
    assert answer.code == 2
    short, fine, flipped = json.loads(answer.out)["files"]
    assert [entry["path"] for entry in (short, fine, flipped)] == [str(bad[0]), str(good[0]), str(bad[1])]
    assert (short["ok"], fine["ok"], flipped["ok"]) == (False, True, False)
    assert fine["error"] is None and fine["lattice"] == [4, 4, 4, 6] and fine["format"] == "ILDG"
    assert "truncated" in short["error"] and any(not check["ok"] for check in flipped["checks"])

    named, absent = good[1].rename(good[1].with_name("a\nb")), good[0].with_name("c\nd")
    answer = quarkline("check", named, absent)
    assert "a\\nb: NERSC, 4x4x4x6" in answer.out and answer.err.endswith(
        "c\\nd: no such file; check the name\n"
    )


def test_reference_configurations(quarkline: CommandLine, reference_data: Path) -> None:
    files = [reference_data / name for name in ("milc/lat.sample.l4448", "chroma/t_nersc.cfg")]
    answer = quarkline("check", "--json", *files)
    assert answer.code == 0
    assert [entry["format"] for entry in json.loads(answer.out)["files"]] == ["MILC v5", "NERSC"]


def test_a_broken_file_prints_no_number_of_hundreds_of_digits() -> None:
    from workflows.commands.check import _ten_digits

    assert _ten_digits(0.5934567890123) == "0.5934567890" and _ten_digits(-3.25) == "-3.2500000000"
    assert _ten_digits(7.24e300) == "7.24e+300" and _ten_digits(float("nan")) == "nan"


TABLE = """\
ours: {extents: [4, 4, 4, 6], beta: 6.0, masses: {light: 0.01}, a_fm: 0.12, error: 0.001}
finer: {extents: [4, 4, 4, 6], beta: 6.3, masses: {light: 0.01}, a_fm: 0.09, error: 0.001}
longer: {extents: [4, 4, 4, 8], beta: 6.0, masses: {light: 0.01}, a_fm: 0.12, error: 0.001}
"""


def test_files_of_an_ensemble(quarkline: CommandLine, good: list[Path], tmp_path: Path) -> None:
    (tmp_path / "table.yaml").write_text(TABLE)
    nersc = tmp_path / "good.nersc"
    nersc.write_bytes(nersc.read_bytes().replace(b"END_HEADER", b"BETA = 6.000\nEND_HEADER", 1))
    for name, code, words in (
        ("ours", 0, "verified     NERSC checksum, plaquette (15 digits), link trace (15 digits)"),
        ("finer", 2, "beta of finer should be 6.3, found 6; is it a configuration of finer?"),
        ("longer", 2, "lattice of longer should be 4x4x4x8, found 4x4x4x6"),
        ("l1648f211b580m013m065m838", 2, "lattice of l1648f211b580m013m065m838 should be 16x16x16x48"),
        ("l1648", 2, "no MILC ensemble is named 'l1648'"),
    ):
        answer = quarkline("check", nersc, "--ensemble", name, "--table", "table.yaml")
        assert answer.code == code and words in answer.out + answer.err, name
    assert "--table needs --ensemble NAME" in quarkline("check", nersc, "--table", "table.yaml").err
    (tmp_path / "table.yaml").write_text("ours: {extents: [4]}")
    answer = quarkline("check", nersc, "--ensemble", "ours", "--table", "table.yaml")
    assert (
        answer.code == 2 and "table.yaml: no table of ensembles" in answer.err and "a_fm: 0.12" in answer.err
    )
