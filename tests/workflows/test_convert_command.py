"""`quarkline convert`: every format that is read into every one that is written, and what it refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from tiny_project import CommandLine

from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.formats import read_gauge, write_ildg
from stages.lqcd.lattice.geometry import Lattice

LATTICE = Lattice((4, 2, 6, 4))
NAMES = {"ildg": "ILDG", "nersc": "NERSC", "milc": "MILC v5"}
REFERENCE = {
    "milc/lat.sample.l4444": "MILC v5",
    "milc/lat.sample.l4448": "MILC v5",
    "milc/lat.sample.l4444.ildg": "ILDG",
    "milc/lat.sample.l8": "SciDAC",
    "chroma/weak_field.lime": "ILDG",
    "chroma/t_nersc.cfg": "NERSC",
    "ddalphaamg/4x4x4x4b6.0000id3n1": "DDalphaAMG",
}


@pytest.fixture(scope="module")
def links() -> np.ndarray:
    return thermalised(LATTICE, 5.8, 613, "convert", 3, 1)


@pytest.fixture
def double(tmp_path: Path, links: np.ndarray) -> Path:
    write_ildg(tmp_path / "in.ildg", links, LATTICE, 64)
    return tmp_path / "in.ildg"


@pytest.mark.parametrize("format", NAMES)
@pytest.mark.parametrize("name", REFERENCE)
def test_configurations_of_other_codes(quarkline, reference_data, tmp_path, name, format):
    before = read_gauge(reference_data / name)
    assert before.format == REFERENCE[name]
    answer = quarkline("convert", reference_data / name, f"out.{format}")
    assert answer.code == 0 and answer.err == ""
    after = read_gauge(tmp_path / f"out.{format}")
    assert after.format == NAMES[format] and after.lattice == before.lattice
    if before.precision == 32 or format != "milc":
        assert after.precision == before.precision
        assert (after.links.view(np.uint8) == before.links.view(np.uint8)).all()
        assert "numbers      unchanged" in answer.out
    else:
        assert (after.links == before.links.astype(np.complex64)).all()
        assert "numbers      rounded, by " in answer.out
    assert f"{before.plaquette.total:.15f}" in answer.out and f"{after.plaquette.total:.15f}" in answer.out
    assert answer.out.count("link trace") == 2


@pytest.mark.parametrize("name", ["lat.sample.l4444", "lat.sample.l8888"])
def test_a_file_of_milc_is_written_byte_by_byte_as_milc_did(quarkline, reference_data, tmp_path, name):
    original = (reference_data / "milc" / name).read_bytes()
    assert quarkline("convert", reference_data / "milc" / name, "there.ildg").code == 0
    assert quarkline("convert", "there.ildg", "back.milc").code == 0
    written = (tmp_path / "back.milc").read_bytes()
    stamp = slice(20, 84)
    assert written[:20] == original[:20] and written[84:] == original[84:]
    assert written[stamp].rstrip(b"\0").isascii() and written[stamp].endswith(b"\0")


def test_big_endian_milc_file_gets_the_checksums_of_its_values(quarkline, reference_data, tmp_path):
    original = (reference_data / "milc" / "lat.sample.l4448").read_bytes()
    assert quarkline("convert", reference_data / "milc" / "lat.sample.l4448", "out.milc").code == 0
    written = (tmp_path / "out.milc").read_bytes()
    assert np.array_equal(np.frombuffer(written[84:92], "<u4"), np.frombuffer(original[84:92], ">u4"))


def test_double_precision_there_and_back_is_the_same_bits(quarkline, double, tmp_path, links):
    for source, target in (("in.ildg", "a.nersc"), ("a.nersc", "b.lime"), ("b.lime", "c.NERSC")):
        assert quarkline("convert", source, target).code == 0
    last = read_gauge(tmp_path / "c.NERSC")
    assert last.format == "NERSC" and last.links.tobytes() == links.tobytes()

    answer = quarkline("convert", "in.ildg", "lat.0100", "--format", "ildg", "--precision", "single")
    field = read_gauge(tmp_path / "lat.0100")
    assert (field.format, field.precision) == ("ILDG", 32)
    rounding = float(answer.out.split("rounded, by ")[1].split()[0])
    assert 1e-9 < rounding < 3.1e-8
    answer = quarkline("convert", "lat.0100", "wide.nersc", "--precision", "double")
    assert "unchanged" in answer.out and read_gauge(tmp_path / "wide.nersc").precision == 64


def test_an_existing_file_is_replaced_only_if_asked(quarkline, double, tmp_path):
    (tmp_path / "out.milc").write_bytes(b"precious")
    answer = quarkline("convert", "in.ildg", "out.milc")
    assert answer.code == 2
    assert answer.err == "error: out.milc: exists already; give another name, or --overwrite\n"
    assert (tmp_path / "out.milc").read_bytes() == b"precious"
    assert quarkline("convert", "in.ildg", "out.milc", "--overwrite").code == 0
    assert read_gauge(tmp_path / "out.milc").format == "MILC v5"


def damaged(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.ildg", "out.dat"], "out.dat: its name does not tell the format to write; end it in .ildg or"),
        (["in.ildg", "out.milc", "--precision", "double"], "MILC v5 files have single precision"),
        (["in.ildg", "in.ildg", "--overwrite"], "in.ildg: this is the file that is read"),
        (["in.ildg", "link.nersc", "--overwrite"], "link.nersc: this is the file that is read"),
        (["in.ildg", "nowhere/out.ildg"], "its folder nowhere does not exist"),
        (["in.ildg", "folder.ildg", "--overwrite"], "folder.ildg: this is a folder"),
        (["in.ildg", "pipe.ildg", "--overwrite"], "pipe.ildg: this is a device or a pipe"),
        (["pipe.ildg", "out.nersc"], "pipe.ildg: this is a device or a pipe"),
        (["absent.ildg", "out.nersc"], "absent.ildg: no such file"),
        (["damaged.ildg", "out.nersc"], "damaged.ildg: ILDG, 4x2x6x4: SciDAC checksum a should be"),
        (["short.ildg", "out.nersc"], "short.ildg: truncated"),
        (["text.ildg", "out.nersc"], "text.ildg: is not a gauge file in any known format"),
        (["phases.ildg", "out.nersc"], "phases.ildg: ILDG, 4x2x6x4: largest |det U - 1| should be"),
    ],
)
def test_what_cannot_be_converted_is_one_line_and_writes_nothing(
    quarkline: CommandLine,
    double: Path,
    tmp_path: Path,
    links: np.ndarray,
    arguments: list[str],
    message: str,
) -> None:
    content = double.read_bytes()
    (tmp_path / "damaged.ildg").write_bytes(damaged(content))
    (tmp_path / "short.ildg").write_bytes(content[:-4000])
    (tmp_path / "text.ildg").write_text("a letter, not a gauge field")
    (tmp_path / "link.nersc").symlink_to(double)
    (tmp_path / "folder.ildg").mkdir()
    os.mkfifo(tmp_path / "pipe.ildg")
    signs = np.where(np.arange(LATTICE.half_volume) % 5 == 0, -1, 1)[:, None, None]
    write_ildg(tmp_path / "phases.ildg", links * signs, LATTICE, 64)
    before = sorted(tmp_path.iterdir())
    answer = quarkline("convert", *arguments)
    assert answer.code == 2 and message in answer.err
    assert answer.err.startswith("error: ") and answer.err.count("\n") == 1 and "; " in answer.err
    assert sorted(tmp_path.iterdir()) == before and double.read_bytes() == content


def test_disk_full(quarkline, double, tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "out.milc").write_bytes(b"precious")
    monkeypatch.setattr(os, "fsync", full)
    answer = quarkline("convert", "in.ildg", "out.milc", "--overwrite")
    assert answer.code == 2 and "out.milc: cannot be written (No space left on device)" in answer.err
    assert (tmp_path / "out.milc").read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.ildg", "out.milc"]


def test_a_disk_that_loses_a_bit_is_noticed_before_the_file_appears(quarkline, double, tmp_path, monkeypatch):
    from stages.lqcd.lattice.formats import conversion

    def read(path: Path):
        if path.name.startswith(".out"):
            path.write_bytes(damaged(path.read_bytes()))
        return read_gauge(path)

    monkeypatch.setattr(conversion, "read_gauge", read)
    answer = quarkline("convert", "in.ildg", "out.nersc")
    assert answer.code == 2 and "out.nersc: what was written does not read back" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.ildg"]
