"""LIME files of other writers: stray bytes, records in another order, the plaquette that tmLQCD states."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.gauge.reunitarise import polar_su3
from stages.lqcd.lattice.formats import check_gauge, lime, read_field, read_gauge, write_ildg
from stages.lqcd.lattice.formats.gauge_file import printed_claim
from stages.lqcd.lattice.formats.sample import stated_plaquette
from stages.lqcd.lattice.formats.scidac import messages
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import plaquette
from support.refusals import refuses

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
    refuses(said, read_gauge, file)


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
    said = r"plaquette should be '{}', which is no number, found .*; the checksum is right"
    for text in ("none", "nan", "1e999", "0x1p-1", "0.6_5", "1.2.3"):
        path = described(file, TEXT.format(text))
        refuses(said.format(text), read_gauge, path)
        assert not check_gauge(path).ok and stated_plaquette(path) is None
        read_gauge(path, wrong_header=True)


def test_a_plaquette_that_is_left_out_states_nothing(file: Path) -> None:
    """No word of the next line is taken for it."""
    path = described(file, TEXT.format(""))
    report = check_gauge(path)
    assert report.ok and report.notes == ("states nothing as plaquette",)
    assert "plaquette" not in {check.name for check in report.checks}


@pytest.mark.parametrize("text", ["0", "1", "0.", "1e0", "-0"])
def test_a_plaquette_without_digits_verifies_nothing(file: Path, text: str) -> None:
    path = described(file, TEXT.format(text))
    report = check_gauge(path)
    assert report.ok and "plaquette" not in {check.name for check in report.checks}
    assert report.notes == (
        f"states {float(text):g} as plaquette, which has no digit after the point: it verifies nothing",
    )
    with pytest.warns(UserWarning, match="it verifies nothing"):
        read_gauge(path)


@pytest.mark.parametrize(
    ("stated", "actual", "digits"),
    [
        ("0.7", 0.6512, 1),
        ("0.6", 0.6512, 1),
        ("0.65", 0.6512, 2),
        ("0.6512", 0.65118, 4),
        ("0.651200", 0.6512001, 6),
        ("6.512e-01", 0.6512, 4),
        (".65E0", 0.6512, 2),
        ("65e-2", 0.6512, 2),
        ("6.512D-01", 0.6512, 4),
        ("0.65120000000000000000", 0.6512, 15),
        ("-0.01", -0.0149, 2),
        ("0.8", 0.6512, None),
        ("0.64", 0.6512, None),
        ("0.651301", 0.6512, None),
        ("0.000000", 0.6512, None),
        ("0.0", 0.6512, None),
        ("7", 0.6512, None),
    ],
)
def test_a_value_verifies_what_its_digits_say(stated: str, actual: float, digits: int | None) -> None:
    """Rounded or cut off."""
    claim = printed_claim("plaquette", stated, 32)
    check = claim.check(actual)
    assert claim.telling and check.ok == (digits is not None) and check.digits == digits


def records_of(file: Path) -> dict[str, tuple[bytes, bytes]]:
    """Header and payload, with its padding, of each record by its type."""
    content = file.read_bytes()
    return {
        r.kind: (content[r.offset - lime.HEADER.size : r.offset], content[r.offset : r.end])
        for r in lime.records(file)
    }


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("place", ["first", "before the data", "own message", "twice", "texts last"])
def test_a_checksum_wherever_it_stands(file: Path, links: NDArray, place: str, wrong: bool) -> None:
    parts = records_of(file)
    _, text = parts.pop("scidac-checksum")
    if wrong:
        digit = text.index(b"</sumb>") - 1
        text = text[:digit] + (b"0" if text[digit : digit + 1] != b"0" else b"1") + text[digit + 1 :]
    flags = lime.BEGIN | lime.END if place in ("first", "own message") else 0
    checksum = lime.HEADER.pack(lime.MAGIC, 1, flags, len(text), b"scidac-checksum") + text
    checksum += b"\0" * (-len(checksum) % 8)
    data = b"".join(parts.pop("ildg-binary-data"))
    texts = [b"".join(part) for part in parts.values()]
    orders = {
        "first": [checksum, *texts, data],
        "before the data": [*texts, checksum, data],
        "own message": [*texts, data, checksum],
        "twice": [*texts, data, b"".join(records_of(file)["scidac-checksum"]), checksum],
        "texts last": [checksum, data, *texts],
    }
    path = file.with_name("reordered")
    path.write_bytes(b"".join(orders[place]))
    report = check_gauge(path)
    assert not report.notes and report.ok != wrong
    assert sum("checksum" in check.name for check in report.checks) == (4 if place == "twice" else 2)


def test_checksums_of_several_fields_keep_to_theirs(file: Path) -> None:
    """Each in the message of its data, before them; the first field has none."""
    parts, data = records_of(file), lime.HEADER.pack(lime.MAGIC, 1, 0, 8, b"scidac-binary-data") + bytes(8)
    begin = lime.HEADER.pack(lime.MAGIC, 1, lime.BEGIN, 8, b"note") + bytes(8)
    checksum = b"".join(parts["scidac-checksum"])
    path = file.with_name("several")
    path.write_bytes(begin + data + begin + checksum + data + begin + checksum + data)
    assert [len(message.checksums) for message in messages(path)] == [0, 1, 1]
    path.write_bytes(data + checksum + data + checksum)  # of a writer that sets no flags
    assert [len(message.checksums) for message in messages(path)] == [1, 1]
    path.write_bytes(checksum + data + checksum + data)
    assert [len(message.checksums) for message in messages(path)] == [1, 1]


def test_a_wrong_plaquette_beside_a_right_checksum(file: Path, links: NDArray) -> None:
    """It is said, and taken where that is asked for; without a right checksum it is not."""
    path = described(file, TEXT.format("0.0000"))
    said = r"plaquette should be 0, found .*; the checksum is right, .* name the file in `ensemble.wrong_h"
    refuses(said, read_gauge, path)
    np.testing.assert_array_equal(read_gauge(path, wrong_header=True).links, links)
    path.write_bytes(path.read_bytes().replace(b"scidac-checksum", b"scidac-checksun"))
    refuses(r"plaquette should be 0, found .*; the file is damaged", read_gauge, path, wrong_header=True)
    damaged = bytearray(described(file, TEXT.format("0.0000")).read_bytes())
    damaged[-400] ^= 1
    path.write_bytes(bytes(damaged))
    refuses("SciDAC checksum a should be", read_gauge, path, wrong_header=True)


def test_two_headers_of_different_precisions(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"<precision>D", b"<precision>F"))
    refuses("ILDG header states 64 bits, its SciDAC header precision F", read_gauge, file)


def test_a_published_file_with_a_stray_byte(reference_data: Path) -> None:
    with pytest.warns(UserWarning, match="1 stray byte after its last record"):
        fat = read_field(reference_data / "hvp" / "fat4444a.ildg.20")
    assert fat.values.shape == (4, 2, 128, 3, 3) and np.isfinite(fat.values).all()
