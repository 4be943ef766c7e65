"""Files of tmLQCD's community: propagators, and eigenvectors, noise and perambulators of stochastic LapH.

Spinors are turned from their basis into this one (`stages.lqcd.kernels.gamma.tmlqcd_spinors`), where their g5
is -gamma5. 2 kappa M_kappa^-1, as stored, is M^-1 of this library with the same twisted mass. Where boundary
phases are spread over all links, M^-1 b is e^{-i pi t / T} M^-1 e^{i pi t / T} b of a sign on the last slice.
Sources: tmLQCD, doc/prop_format.tex; github.com/HISKP-LQCD/sLapH-contractions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, check_number, check_whole
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS, tmlqcd_spinors
from stages.lqcd.kernels.transfer import copy_to_host
from stages.lqcd.lattice.formats import lime
from stages.lqcd.lattice.formats.binary import created, damaged, fault, opened, warn
from stages.lqcd.lattice.formats.gauge_file import UNVERIFIED, printed_claim
from stages.lqcd.lattice.formats.ildg import encode_data
from stages.lqcd.lattice.formats.scidac import StoredField, expect_length, integer, messages
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

KIND, INVERTER, FORMAT = "propagator-type", "inverter-info", "etmc-propagator-format"
KINDS = {"DiracFermion_Sink": slice(None), "DiracFermion_Source_Sink_Pairs": slice(1, None, 2)}
"""Kinds of files with propagators, and which of their fields these are."""
MASSES = re.compile(r"kappa = ([^\s,]+), mu = ([^\s,]+)")
SUBSETS = re.compile(r"\.Tso.(\d+)\.Vso.(\d+)\.Dso.(\d+)\.")
"""Numbers of subsets of times, eigenvectors and spins in the name of a perambulator's file."""
PathName = str | Path


def read_tmlqcd(paths: PathName | Sequence[PathName], lattice: Lattice, kappa: float, mu: float) -> NDArray:
    """M^-1 times sources from LIME files, complex128 ``[parity, site, 12, column]``, columns in their order.

    kappa, mu: those that the files must state. Raises InputError for others, another lattice, a doublet,
    solutions of Q^dag Q, and damage. Warns (UserWarning) of data without a checksum.
    """
    check_number("kappa", kappa)
    check_number("mu", mu)
    files = [paths] if isinstance(paths, str | Path) else paths
    columns = [each for path in files for each in _sinks(Path(path), lattice, kappa, mu)]
    if not columns:
        raise InputError(f"there is no propagator in {files}: name files of tmLQCD that have one")
    return np.stack(columns, axis=-1)


def _sinks(path: Path, lattice: Lattice, kappa: float, mu: float) -> Iterator[NDArray[np.complex128]]:
    texts = {each.kind: lime.text(path, each) for each in lime.records(path) if "data" not in each.kind}
    kind, xml, info = (texts.get(name, "") for name in (KIND, FORMAT, INVERTER))
    if kind not in KINDS:
        raise fault(path, f"states {kind!r} as its {KIND}", f"{' and '.join(KINDS)} can be read")
    if integer(path, xml, "flavours") != 1 or "Q^dagger Q" in info:
        raise fault(path, "is of a doublet or of Q^dag Q", "use a propagator of one flavour")
    x, y, _, t = lattice.extents  # tmLQCD writes lx in the place of lz
    if (stated := tuple(integer(path, xml, name) for name in ("lx", "ly", "lt"))) != (x, y, t):
        raise fault(path, f"states lx, ly, lt = {stated}, not those of {lattice}", "give its own lattice")
    printed = MASSES.search(info)
    for number, (name, mass) in enumerate((("kappa", kappa), ("mu", mu)), start=1):
        check = printed_claim(name, printed[number] if printed else "", 64).check(mass)
        if not check.ok:
            raise fault(path, f"its {name} is {check.expected}, not {mass:g}", "give its own, or other files")
    fields, chosen = messages(path), KINDS[kind]
    if len(fields) % (chosen.step or 1):
        raise damaged(path, f"has {len(fields)} fields, not pairs of a source and a sink")
    for message in fields[chosen]:
        bits = 32 if message.data.length == lattice.volume * 8 * COMPONENTS else 64
        expect_length(message, lattice, 2 * COMPONENTS * bits // 8)
        field = np.empty((2, lattice.half_volume, SPINS, COLOURS), complex if bits == 64 else np.complex64)
        checks = StoredField(message, lattice, bits, 2 * COMPONENTS, 1).read(field)
        if wrong := [check for check in checks if not check.ok]:
            raise damaged(path, str(wrong[0]))
        _check_numbers(path, field, *NUMBERS, stored="big")
        warn(path, () if checks else (UNVERIFIED,))
        yield tmlqcd_spinors(field, 2).reshape(2, -1, COMPONENTS)


def write_tmlqcd(path: PathName, propagator: Array, lattice: Lattice, kappa: float, mu: float) -> None:
    """Write a propagator ``[parity, site, 12, column]`` as a LIME file of sinks, 64 bit.

    kappa, mu: those of its quark. Raises InputError for another shape, numbers that are none, or path.
    """
    check_number("kappa", kappa)
    check_number("mu", mu)
    number = (getattr(propagator, "shape", ())[3:] or (0,))[0] or COMPONENTS
    _check_shape(path, propagator, (2, lattice.half_volume, COMPONENTS, number))
    columns = [_values(path, each, *NUMBERS) for each in np.moveaxis(copy_to_host(propagator), -1, 0)]
    numbers = zip(("precision", "flavours", "lx", "ly", "lz", "lt"), (64, 1, *lattice.extents), strict=True)
    xml = "".join(f"<{name}>{number}</{name}>" for name, number in numbers)
    info = f"solver = other\nkappa = {kappa:.12f}, mu = {mu:.12f}\ninverter version = quarkline"
    with created(Path(path)) as file:
        lime.write_record(file, KIND, next(iter(KINDS)).encode(), lime.BEGIN | lime.END)
        lime.write_record(file, INVERTER, info.encode(), lime.BEGIN)
        for column in columns:
            format = f"<etmcFormat><field>diracFermion</field>{xml}</etmcFormat>"
            lime.write_record(file, FORMAT, format.encode(), lime.END)
            spinors = tmlqcd_spinors(column.reshape(2, -1, SPINS, COLOURS), 2)
            encode_data(file, "scidac-binary-data", spinors, lattice, lime.BEGIN)


def _plausible(v: NDArray) -> bool:
    return bool(1e-30 < np.abs(v).max(initial=0) < 1e12)


def _orthonormal(v: NDArray) -> bool:
    return bool(np.abs(np.tensordot(v.conj(), v, 2 * (range(1, v.ndim),)) - np.eye(len(v))).max() < 1e-6)


NUMBERS = "numbers below 1e12, of which one is not 0", _plausible
LAYOUTS: dict[str, tuple[str, str, str, Callable[[NDArray], bool]]] = {
    "eigenvectors": ("exyzc", "", "orthonormal vectors", _orthonormal),
    "noise": ("tes", "tse", "numbers of modulus 1", lambda rho: np.abs(np.abs(rho) - 1).max() < 1e-6),
    "perambulator": ("tesTES", "TtseSE", *NUMBERS),
}
"""Axes of a file, the last fastest, and of an array; what its numbers are, and a test of that. t, x, y, z;
spin s, colour c, eigenvector e; subsets of times T, of spins S, of eigenvectors E."""


@dataclass(frozen=True)
class SlaphFiles:
    """Files of stochastic LapH, complex128 in little endian, as arrays for `stages.lqcd.distillation`.

    eigenvectors: their number on a time slice. subsets: numbers of those of times, each a source, of spins
    and of eigenvectors. Kinds: 'eigenvectors' ``[time, parity, site of the slice, colour, eigenvector]``, of
    files PATH.000, PATH.001, ...; 'noise' rho ``[time, spin, eigenvector]``; 'perambulator' V^H M^-1 V P rho
    ``[source, time, spin, eigenvector, subset of spins, subset of eigenvectors]``.
    """

    lattice: Lattice
    eigenvectors: int
    subsets: tuple[int, int, int] = (1, SPINS, 1)

    def __post_init__(self) -> None:
        check_whole("the number of eigenvectors", self.eigenvectors, 1)
        most = self.lattice.time_extent, SPINS, self.eigenvectors
        fit = isinstance(self.subsets, Sequence) and len(self.subsets) == len(most)
        if not fit or any(
            number not in range(1, 1 + n) for number, n in zip(self.subsets, most, strict=True)
        ):
            raise InputError(
                f"subsets are three whole numbers, from 1 to {', '.join(map(str, most))} of times, spins and "
                f"eigenvectors, got {self.subsets!r}"
            )

    def read(self, kind: str, path: PathName) -> NDArray[np.complex128]:
        """The array of a file. Raises InputError: missing, of another size or byte order, or damaged."""
        array = np.empty(self._shape(kind), complex)
        if kind != "eigenvectors":
            array[:] = _turned(self._stored(kind, Path(path)), *LAYOUTS[kind][:2])
            return array
        for time, part in enumerate(array):
            if not (file := Path(f"{path}.{time:03}")).exists():
                raise fault(file, f"no such file, and each slice of {self.lattice} has one", "fetch it")
            part[:] = self._stored(kind, file)[self._sites(time)].transpose(1, 2, 3, 0)
        return array

    def write(self, kind: str, path: PathName, array: Array) -> None:
        """Write what `read` reads. Raises InputError for another array, and where nothing can be written."""
        _check_shape(path, array, self._shape(kind))
        stored, here = LAYOUTS[kind][:2]
        for time in range(self.lattice.time_extent if kind == "eigenvectors" else 1):
            values = np.empty(self._extents(stored), "<c16")
            if kind == "eigenvectors":
                values[self._sites(time)] = copy_to_host(array[time]).transpose(3, 0, 1, 2)
            else:
                values[:] = _turned(copy_to_host(array), here, stored)
            _values(path, values, *LAYOUTS[kind][2:])
            with created(Path(f"{path}.{time:03}" if kind == "eigenvectors" else path)) as file:
                file.write(values.data)

    def _extents(self, axes: str) -> tuple[int, ...]:
        numbers = (*self.lattice.extents, SPINS, COLOURS, self.eigenvectors, *self.subsets)
        return tuple(dict(zip("xyztsceTSE", numbers, strict=True))[axis] for axis in axes)

    def _shape(self, kind: str) -> tuple[int, ...]:
        if kind not in LAYOUTS:
            raise InputError(f"a kind of file is one of {', '.join(LAYOUTS)}, got {kind!r}")
        slices = (*self._extents("t"), 2, self.lattice.sites_per_slice, *self._extents("ce"))
        return slices if kind == "eigenvectors" else self._extents(LAYOUTS[kind][1])

    def _sites(self, time: int) -> tuple[slice | NDArray, ...]:
        """Index of the sites of both parities in what is stored of a slice."""
        first, last = (number * self.lattice.sites_per_slice for number in (time, time + 1))
        sites = [self.lattice.coordinates(parity)[first:last, :3] for parity in (EVEN, ODD)]
        return slice(None), *np.moveaxis(np.array(sites), -1, 0)

    def _stored(self, kind: str, path: Path) -> NDArray[np.complex128]:
        axes, _, words, sound = LAYOUTS[kind]
        extents = self._extents(axes)
        with opened(path) as file:
            raw = file.read()
        if len(raw) != 16 * prod(extents):
            what = f"not the {16 * prod(extents)} of {kind} of extents {extents} ({', '.join(axes)})"
            remedy = "give the lattice, eigenvectors and subsets that it was written with"
            raise fault(path, f"has {len(raw)} bytes, {what}", remedy)
        named = SUBSETS.search(path.name) if kind == "perambulator" else None
        if named and self._extents("TES") != tuple(map(int, named.groups())):
            raise fault(path, f"its name does not tell of subsets {self.subsets}", "give those of its name")
        values = np.frombuffer(raw, "<c16").reshape(extents)
        _check_numbers(path, values, words, sound, stored="little")
        return values


def _turned(values: NDArray, axes: str, others: str) -> NDArray[np.complex128]:
    """Values in the other basis, also the subsets of spins, with other axes."""
    turned = tmlqcd_spinors(values, axes.index("s"))
    turned = np.flip(turned, axes.index("S")) if "S" in axes else turned
    return turned.transpose(*map(axes.index, others))


def _check_numbers(
    path: Path, values: NDArray, words: str, sound: Callable[[NDArray], bool], stored: str
) -> None:
    """Raise InputError unless what was read is sound; stored: the byte order that files have."""
    with np.errstate(all="ignore"):
        if sound(values):
            return
        if sound(values.byteswap()):
            other, size = {"big": "little", "little": "big"}[stored], values.real.itemsize
            remedy = f"reverse the bytes of each {size}-byte number in it"
            raise fault(path, f"is in {other}-endian byte order, and {stored}-endian is read", remedy)
    raise damaged(path, f"does not hold {words}")


def _values(path: PathName, values: NDArray, words: str, sound: Callable[[NDArray], bool]) -> NDArray:
    """Values to be written, complex128. Raises InputError for such as would not be read."""
    with np.errstate(all="ignore"):
        if not sound(values):
            raise fault(
                Path(path), f"an array that does not hold {words} is not for it", "check what made it"
            )
    return values.astype(complex, copy=False)


def _check_shape(path: PathName, array: Array, expected: tuple[int, ...]) -> None:
    if (shape := getattr(array, "shape", None)) != expected:
        what = f"a {type(array).__name__}" if shape is None else f"an array of shape {shape}"
        raise fault(Path(path), f"{what} is not for it", f"give {expected}")
