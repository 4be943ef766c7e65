"""Files of tmLQCD and of its chain of stochastic LapH: layouts written out in plain Python, and bad input."""

import itertools
import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.kernels.gamma import GAMMA, GAMMA5, tmlqcd_spinors
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.tmlqcd_files import SlaphFiles, read_tmlqcd, write_tmlqcd
from support.foreign_writers import checksum_record as checksum
from support.foreign_writers import lime_record, reals, scidac_checksum
from support.lexicographic import to_lexicographic, to_parity
from support.refusals import refuses

LATTICE, K = Lattice((4, 2, 2, 4)), 5
FILES = SlaphFiles(LATTICE, K, (2, 4, 1))
SPINS = np.array([[0, 0, 0, 1], [0, 0, -1, 0], [0, -1, 0, 0], [1, 0, 0, 0]])
"""Spinors of tmLQCD's basis to ours."""
KAPPA, MU = 0.17, 0.0513


def random(*shape: int) -> NDArray:
    rng = np.random.default_rng(1905)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def vectors() -> NDArray:
    """Orthonormal on each slice ``[time, parity, site, colour, eigenvector]``."""
    q, _ = np.linalg.qr(random(4, 48, K))
    return q.reshape(4, 2, 8, 3, K)


ARRAYS: dict[str, Callable[[], NDArray]] = {
    "eigenvectors": vectors,
    "noise": lambda: np.exp(1j * random(4, 4, K).real),
    "perambulator": lambda: random(2, 4, 4, K, 4, 1),
}


def test_gamma_matrices_of_tmlqcd_become_ours() -> None:
    """As its manual prints them, and g5 = diag(1, 1, -1, -1), which changes its sign."""
    blocks = (np.array([[0, 1j], [1j, 0]]), np.array([[0, 1], [-1, 0]]), np.diag([1j, -1j]), np.eye(2))
    theirs = [np.kron([[0, 1], [0, 0]], -each) + np.kron([[0, 0], [1, 0]], -each.conj().T) for each in blocks]
    for there, here in zip([*theirs, np.diag([1, 1, -1, -1])], [*GAMMA, -GAMMA5], strict=True):
        np.testing.assert_array_equal(tmlqcd_spinors(tmlqcd_spinors(there, 0), 1), here)
    field = random(3, 4, 2)
    np.testing.assert_array_equal(tmlqcd_spinors(field, 1), np.einsum("ab,nbc->nac", SPINS, field))


def in_plain_python(kind: str, array: NDArray, time: int) -> list[complex]:
    """The numbers of a file in order; SPINS is its own inverse."""
    if kind == "eigenvectors":
        slices = [to_lexicographic(array.transpose(1, 0, 2, 3, 4).reshape(2, -1, 3, K), LATTICE)[time]]
        places = itertools.product(range(K), range(4), range(2), range(2), range(3))
        return [slices[0][z, y, x, c, e] for e, x, y, z, c in places]
    turned = np.einsum("ab,tbe...->tae..." if kind == "noise" else "ab,Ttbe...->Ttae...", SPINS, array)
    if kind == "noise":
        return [turned[t, s, e] for t, e, s in itertools.product(range(4), range(K), range(4))]
    places = itertools.product(range(4), range(K), range(4), range(2), range(1), range(4))
    return [turned[T, t, s, e, 3 - S, E] for t, e, s, T, E, S in places]


@pytest.mark.parametrize("kind", ARRAYS)
def test_files_of_stochastic_laph(tmp_path: Path, kind: str) -> None:
    array, path = ARRAYS[kind](), tmp_path / "file"
    FILES.write(kind, path, array)
    for time in range(4 if kind == "eigenvectors" else 1):
        file = tmp_path / (f"file.{time:03}" if kind == "eigenvectors" else "file")
        expected = reals(np.array(in_plain_python(kind, array, time)), "<", 8)
        assert file.read_bytes() == expected
    np.testing.assert_array_equal(FILES.read(kind, path), array)


def swap(file: Path) -> None:
    file.write_bytes(np.frombuffer(file.read_bytes(), "<f8").byteswap().tobytes())


@pytest.mark.parametrize(
    ("kind", "harm", "said"),
    [
        ("eigenvectors", lambda file: file.unlink(), r"file.001: no such file, and each slice of 4x2x2x4"),
        ("eigenvectors", lambda file: file.write_bytes(bytes(3840)), r"file.001: does not hold orthonormal"),
        ("noise", lambda file: file.write_bytes(bytes(1280)), "file: does not hold numbers of modulus 1"),
        ("perambulator", lambda file: file.write_bytes(b"\xff" * 10240), "does not hold numbers below 1e12"),
        ("perambulator", lambda file: file.write_bytes(bytes(10240)), "of which one is not 0; the file"),
        ("noise", lambda file: file.unlink(), "file: no such file; check the name"),
        ("noise", lambda file: file.write_bytes(bytes(96)), "96 bytes, not the 1280 of noise of extents"),
        *((kind, swap, "is in big-endian byte order, and little-endian is read; reverse") for kind in ARRAYS),
    ],
)  # fmt: skip
def test_bad_files_of_stochastic_laph(
    tmp_path: Path, kind: str, harm: Callable[[Path], None], said: str
) -> None:
    FILES.write(kind, tmp_path / "file", ARRAYS[kind]())
    harm(tmp_path / ("file.001" if kind == "eigenvectors" else "file"))
    refuses(said, FILES.read, kind, tmp_path / "file")


def test_bad_arguments_of_stochastic_laph(tmp_path: Path) -> None:
    refuses("one of eigenvectors, noise, perambulator, got 'peram'", FILES.read, "peram", tmp_path)
    refuses(r"\(4, 5, 4\) is not for it; give \(4, 4, 5\)", FILES.write, "noise", "rho", np.ones((4, K, 4)))
    named, other = tmp_path / "p.u.TsoB0002.VsoI0001.DsoF4.T", tmp_path / "p.u.TsoB0001.VsoI0002.DsoF4.T"
    for path in (named, other):
        FILES.write("perambulator", path, ARRAYS["perambulator"]())
    assert FILES.read("perambulator", named).shape == (2, 4, 4, K, 4, 1)
    refuses(r"its name does not tell of subsets \(2, 4, 1\); give", FILES.read, "perambulator", other)
    refuses("cannot be written", FILES.write, "noise", tmp_path / "no" / "rho", ARRAYS["noise"]())
    refuses(r"a list is not for it; give \(4, 4, 5\)", FILES.write, "noise", "rho", [1.0])
    for kind, make in ARRAYS.items():
        refuses("an array that does not hold", FILES.write, kind, tmp_path / "new", 0 * make())
    assert not (tmp_path / "new").exists()
    refuses("eigenvectors must be a whole number of at least 1, got 0", SlaphFiles, LATTICE, 0)
    for subsets in ((2, 4), (2, 8, 1), (2, 4, 6), (0, 4, 1), 2, ("2", 4, 1)):
        refuses("subsets are three whole numbers, from 1 to 4, 4, 5 of", SlaphFiles, LATTICE, K, subsets)


def foreign(spinors: list[NDArray], bits: int, **changes: str) -> bytes:
    """As tmLQCD writes sinks ``[t, z, y, x, spin, colour]``: lx in the place of lz, one header for all."""
    told = {
        "type": "DiracFermion_Sink",
        "info": f"solver = CG\nepssq = 1e-19\nkappa = {KAPPA:.12f}, mu = {MU:.12f}\ndate = Thu",
        "flavours": "1",
        "lt": "4",
        **changes,
    }
    xml = f"<flavours>{told['flavours']}</flavours><lx>4</lx><ly>2</ly><lz>4</lz><lt>{told['lt']}</lt>"
    content = lime_record("propagator-type", told["type"].encode(), 0xC000)
    content += lime_record("inverter-info", told["info"].encode(), 0x8000)
    for field in spinors:
        sites = [reals(site, ">", bits // 8) for site in field.reshape(-1, 12)]
        content += lime_record("etmc-propagator-format", xml.encode(), 0x4000)
        content += lime_record("scidac-binary-data", b"".join(sites), 0x8000)
        content += checksum(*scidac_checksum(sites))
    return content


@pytest.mark.parametrize("bits", [32, 64])
def test_propagators_of_tmlqcd(tmp_path: Path, bits: int) -> None:
    path, pairs = tmp_path / "source.0000.00.00.inverted", tmp_path / "pairs"
    theirs = random(3, 4, 2, 2, 4, 4, 3).astype(np.complex64)
    path.write_bytes(foreign([*theirs], bits))
    ours = np.einsum("ab,n...bc->...acn", SPINS, theirs).reshape(4, 2, 2, 4, 12, 3)
    found = read_tmlqcd(path, LATTICE, KAPPA, MU)
    np.testing.assert_array_equal(found, to_parity(ours, LATTICE))
    pairs.write_bytes(foreign([*theirs, theirs[0]], bits, type="DiracFermion_Source_Sink_Pairs"))
    np.testing.assert_array_equal(read_tmlqcd([path, pairs], LATTICE, KAPPA, MU)[..., 3], found[..., 1])
    write_tmlqcd(tmp_path / "back", found, LATTICE, KAPPA, MU)
    np.testing.assert_array_equal(read_tmlqcd(tmp_path / "back", LATTICE, KAPPA, MU), found)
    data = foreign([*theirs], 64).split(b"scidac-binary-data")[1:]
    assert (tmp_path / "back").read_bytes().count(data[0][110 : 110 + 200]) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"type": "DiracFermion_Source"}, "states 'DiracFermion_Source' as its propagator-type; Dirac"),
        ({"flavours": "2"}, "is of a doublet or of Q.dag Q; use a propagator of one flavour"),
        ({"info": "result is for Q^dagger Q!\nkappa = 0.17, mu = 0.0513"}, "is of a doublet or of Q.dag Q"),
        ({"lt": "8"}, r"states lx, ly, lt = \(4, 2, 8\), not those of 4x2x2x4; give its own lattice"),
        ({"info": "kappa = 0.160000, mu = 0.0513"}, "its kappa is 0.16, not 0.17; give its own, or"),
        ({"info": "kappa = 0.17, mu = -0.05130"}, "its mu is -0.0513, not 0.0513"),
        ({"info": "kappa = 0.17, mubar = 0.1"}, "its kappa is '', which is no number, not 0.17"),
    ],
)  # fmt: skip
def test_bad_propagators(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    (tmp_path / "prop").write_bytes(foreign([random(4, 2, 2, 4, 4, 3)], 64, **changes))
    refuses(f"prop: {said}", read_tmlqcd, tmp_path / "prop", LATTICE, KAPPA, MU)


def test_damaged_propagators(tmp_path: Path) -> None:
    path, good = tmp_path / "prop", foreign([random(4, 2, 2, 4, 4, 3)], 64)
    for content, said in (
        (good[:-4000], "truncated"),
        (good[:2000] + struct.pack("d", 1.0) + good[2008:], "SciDAC checksum a should be"),
        (foreign([random(4, 2, 2, 3, 4, 3)], 64), "with 192 bytes per site takes 12288 bytes"),
        (foreign([], 64).replace(b"inverter", b"invented"), "lacks <flavours>"),
        (b"no LIME file" * 20, "byte 0 should begin a LIME record"),
    ):
        path.write_bytes(content)
        refuses(said, read_tmlqcd, path, LATTICE, KAPPA, MU)
    refuses("there is no propagator in ", read_tmlqcd, [], LATTICE, KAPPA, MU)
    odd = foreign([random(4, 2, 2, 4, 4, 3)] * 3, 64, type="DiracFermion_Source_Sink_Pairs")
    bare, nan = foreign([random(4, 2, 2, 4, 4, 3)], 64), np.full((4, 2, 2, 4, 4, 3), np.nan + 0j)
    start = bare.index(b"scidac-binary-data") + 128
    swapped = np.frombuffer(bare[start : start + 12288], "f8").byteswap().tobytes()
    for content, said in (
        (odd, "has 3 fields, not pairs of a source and a sink"),
        (foreign([nan], 64), "does not hold numbers below 1e12"),
        (bare[:start] + swapped, "is in little-endian byte order, and big-endian is read; reverse the bytes"),
    ):
        path.write_bytes(content)
        with warnings.catch_warnings(action="ignore"):
            refuses(said, read_tmlqcd, path, LATTICE, KAPPA, MU)
    good_fields = random(2, 32, 12, 2)
    for fields, kappa, mu, said in (
        (good_fields, "0.17", MU, "kappa must be a finite real number, got '0.17'"),
        (good_fields, KAPPA, np.nan, "mu must be a finite real number, got nan"),
        (good_fields * np.inf, KAPPA, MU, "an array that does not hold numbers below 1e12"),
        (good_fields[..., :0], KAPPA, MU, r"\(2, 32, 12, 0\) is not for it; give \(2, 32, 12, 12\)"),
        ([], KAPPA, MU, "a list is not for it; give"),
    ):
        refuses(said, write_tmlqcd, path, fields, LATTICE, kappa, mu)
    refuses("mu must be a finite real number, got None", read_tmlqcd, path, LATTICE, KAPPA, None)
    for fields in (good_fields.real, good_fields.astype(np.complex64)):
        write_tmlqcd(path, fields, LATTICE, KAPPA, MU)
        np.testing.assert_array_equal(read_tmlqcd(path, LATTICE, KAPPA, MU), fields)
    refuses(r"\(2, 32, 12\) is not for it", write_tmlqcd, path, np.ones((2, 32, 12)), LATTICE, KAPPA, MU)
    (tmp_path / "bare").write_bytes(good[: good.index(b"scidac-checksum") - 16])
    with pytest.warns(UserWarning, match="no checksum record"):
        read_tmlqcd(tmp_path / "bare", LATTICE, KAPPA, MU)
