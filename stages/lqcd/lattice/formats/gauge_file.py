"""Result of reading a gauge-field file: the links with their checks, and the report on a file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.lattice.formats.binary import DAMAGED, fault
from stages.lqcd.lattice.formats.site_data import Checksum
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import LinkStatistics, Plaquette, link_statistics, plaquette

GROUP_TOLERANCE = 1e-3
"""Largest deviation from SU(3) of links that are taken for a gauge field; 32-bit files have 5e-7."""

HEADER_TOLERANCE = {32: 2e-6, 64: 1e-10}
"""Agreement asked of a header's plaquette and trace, by precision: old codes summed in single precision."""


@dataclass(frozen=True)
class Check:
    """A value that a file states or that its links must have, what they give, and the remedy."""

    name: str
    expected: str | float
    found: str | float
    ok: bool
    remedy: str = DAMAGED
    digits: int | None = None
    """Number of digits after the point that agree, for a right number that is printed in a header."""

    def __str__(self) -> str:
        return f"{self.name} should be {_printed(self.expected)}, found {_printed(self.found)}"

    @property
    def verified(self) -> str:
        """Name of a check that holds, for people: `plaquette (6 digits)`."""
        if self.digits is None:
            return self.name
        return f"{self.name} ({self.digits} digit{'s' * (self.digits > 1)})"


@dataclass(frozen=True)
class Claim:
    """The mean plaquette or link trace that a header states, normalised to 1, and to what precision."""

    name: str
    value: float
    tolerance: float
    decimals: int | None = None
    """Digits that are printed after the point; None of a binary number."""
    text: str | None = None
    """What the header has in the place of a number, '' or such as nan; `value` is NaN."""

    @property
    def note(self) -> str:
        """Remark on a claim that is not `telling`."""
        if self.text == "":
            return f"states nothing as {self.name}"
        return (
            f"states {self.value:g} as {self.name}, which has no digit after the point: it verifies nothing"
        )

    @property
    def telling(self) -> bool:
        """False for nothing, and for 0, 1 and the like, which without further digits fit any plaquette."""
        if self.text is not None:
            return bool(self.text)
        return self.decimals is None or self.decimals > 0 or abs(self.value) > 1

    def check(self, actual: float) -> Check:
        """The links' value must be the stated one when it is rounded, or cut off, to the stated digits."""
        if self.text is not None:
            return Check(self.name, f"{self.text!r}, which is no number", actual, ok=False)
        unit = 0.0 if self.decimals is None else 10.0**-self.decimals
        excess = math.copysign(1, self.value) * (actual - self.value)
        ok = -unit / 2 - self.tolerance <= excess <= unit + self.tolerance
        return Check(self.name, self.value, actual, ok, digits=self._agreeing(abs(excess)) if ok else None)

    def _agreeing(self, difference: float) -> int | None:
        if not self.decimals:
            return None
        agreeing = int(-math.log10(difference)) if difference else DOUBLE_DIGITS
        return max(1, min(self.decimals, agreeing))


UNVERIFIED = "has no checksum record: whether its numbers are those that were written is not known"
"""Said of a LIME file that lacks what its writers add."""

HEADER_ONLY = (
    "the checksum is right, so the links are as written; to accept them, name the file in "
    "`ensemble.wrong_headers`"
)
"""The remedy for a wrong plaquette or link trace beside a right checksum."""

THIN = "use thin links without phases or boundary signs"
OPEN = (
    "has an open boundary: its links that leave the last time slice are zero; Wilson quarks take it with "
    "boundary: dirichlet"
)
SAMPLED = 9 * 4096
"""Numbers of a field by which smeared links are told from damaged ones."""
FACTORS = {3.0: "the header has three times this number", 1 / 3: "the header has a third of this number"}
"""What other codes call the plaquette is 3 times ours, and the other way round."""

PLAQUETTE = "plaquette"
LINK_TRACE = "link trace"

DOUBLE_DIGITS = 15
"""Digits after the point of numbers below 1 that double precision holds."""
PRINTED = re.compile(r"[+-]?(?:\d+\.?(\d*)|\.(\d+))(?:[eEdD]([+-]?\d+))?", re.ASCII)
"""A number as C and Fortran print it: digits after the point, and the exponent."""


def printed_claim(name: str, text: str, precision: int) -> Claim:
    """The claim of a number printed in a header, to its digits and the precision of the file.

    Text that is no number, such as nan, is a claim that no field fulfils; '' claims nothing.
    """
    number = PRINTED.fullmatch(text.strip())
    value = float(re.sub("[dD]", "e", number[0])) if number else math.nan
    if number is None or not math.isfinite(value):
        return Claim(name, math.nan, 0.0, text=text.strip())
    decimals = len(number[1] or number[2] or "") - int(number[3] or 0)
    return Claim(name, value, HEADER_TOLERANCE[precision], decimals)


def checksum_checks(
    checksum: Checksum, expected: tuple[int, ...], computed: tuple[int, ...]
) -> tuple[Check, ...]:
    """One check for each word of a checksum, printed as eight hexadecimal digits."""
    words = zip(checksum.names, expected, computed, strict=True)
    return tuple(Check(name, f"{stated:08x}", f"{word:08x}", stated == word) for name, stated, word in words)


class GaugeSource(Protocol):
    """A gauge-field file whose header has been read and whose size fits it."""

    @property
    def path(self) -> Path: ...
    @property
    def format(self) -> str: ...
    @property
    def lattice(self) -> Lattice: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def claims(self) -> tuple[Claim, ...]: ...

    def load(self) -> tuple[NDArray, tuple[Check, ...]]:
        """The links ``[mu, parity, site, 3, 3]`` and the checks of the file's checksums."""
        ...


@dataclass(frozen=True, eq=False)
class GaugeField:
    """A gauge field as stored in a file.

    links: ``[mu, parity, site, 3, 3]``, complex64 or complex128 as in the file, values unchanged (a third row
    that the file leaves out is reconstructed). U_mu(x) carries x + mu to x. metadata: what the header says
    beyond the lattice, as text. claims, checksums: what it states of its links.
    """

    path: Path
    format: str
    lattice: Lattice
    links: NDArray = field(repr=False)
    metadata: dict[str, str]
    claims: tuple[Claim, ...]
    checksums: tuple[Check, ...]
    remarks: tuple[str, ...] = ()
    """What its reader noticed beside that."""

    @property
    def precision(self) -> int:
        """Bits of a stored real number: 32 or 64."""
        return 32 if self.links.dtype == np.complex64 else 64

    @cached_property
    def plaquette(self) -> Plaquette:
        return plaquette(self.links, self.lattice)

    @property
    def open_boundary(self) -> bool:
        """True if only the links that leave the last time slice are all zero: the field ends there."""
        with np.errstate(invalid="ignore"):  # of a NaN that signals
            last = self.links[3, :, -self.lattice.sites_per_slice :].any()
            return not last and bool(self.links.any())

    @cached_property
    def statistics(self) -> LinkStatistics:
        """Trace of all links, and deviations of those that an open boundary does not make zero."""
        if not self.open_boundary:
            return link_statistics(self.links)
        inner = self.links[3, :, : -self.lattice.sites_per_slice]
        space, time = link_statistics(self.links[:3]), link_statistics(inner)
        trace = (3 * space.trace + time.trace * inner.size / self.links[3].size) / 4
        deviations = (np.maximum(a, b) for a, b in zip(space[1:], time[1:], strict=True))
        return LinkStatistics(trace, *map(float, deviations))

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """Every checksum and header value of the file against its links, and whether they are in SU(3)."""
        measured = {PLAQUETTE: lambda: self.plaquette.total, LINK_TRACE: lambda: self.statistics.trace}
        telling = [claim for claim in self.claims if claim.telling]
        sums_right = self.checksums and all(check.ok for check in self.checksums)
        found = [claim.check(measured[claim.name]()) for claim in telling]
        claims = tuple(
            replace(check, remedy="; ".join(filter(None, (remark, HEADER_ONLY))))
            if sums_right
            else replace(check, remedy=f"{remark}; correct it there" if remark else DAMAGED)
            for remark, check in zip(_meant(telling, found), found, strict=True)
        )
        return self.checksums + claims + _group_checks(self)

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the file for its reader, none of which is a fault."""
        unverified = self.format in ("ILDG", "SciDAC", "NERSC") and not self.checksums
        silent = (claim.note for claim in self.claims if not claim.telling)
        opens = (OPEN,) if self.open_boundary else ()
        return (*((UNVERIFIED,) if unverified else ()), *silent, *opens, *self.remarks)

    def report(self) -> CheckReport:
        """The report of `check_gauge`: everything but the links."""
        return CheckReport(
            path=self.path,
            format=self.format,
            lattice=self.lattice,
            precision=self.precision,
            plaquette=self.plaquette,
            link_trace=self.statistics.trace,
            unitarity_deviation=self.statistics.unitarity_deviation,
            determinant_deviation=self.statistics.determinant_deviation,
            checks=self.checks,
            metadata=self.metadata,
            notes=self.notes,
        )


def _meant(claims: Sequence[Claim], found: Sequence[Check]) -> list[str]:
    """Remarks on stated numbers that are right but for their factor or their place; '' on any others."""
    actual = [float(check.found) for check in found]
    if len(claims) > 1 and all(map(_is, claims, reversed(actual))):
        return ["plaquette and link trace are exchanged in the header"] * len(claims)
    return [
        next((text for factor, text in FACTORS.items() if _is(claim, factor * value)), "")
        for claim, value in zip(claims, actual, strict=True)
    ]


def _is(claim: Claim, value: float) -> bool:
    return abs(claim.value - value) <= 1e-5 * abs(value) + 10.0 ** -(claim.decimals or DOUBLE_DIGITS)


def _group_checks(field: GaugeField) -> tuple[Check, ...]:
    """Checks that the links are in SU(3) to `GROUP_TOLERANCE`."""
    limit, statistics = f"at most {GROUP_TOLERANCE:g}", field.statistics
    largest = max(statistics.unitarity_deviation, statistics.determinant_deviation)
    remedy = THIN if largest <= GROUP_TOLERANCE or _is_made(field) else DAMAGED
    return tuple(
        Check(name, limit, deviation, deviation <= GROUP_TOLERANCE, remedy)
        for name, deviation in (
            ("largest |U^dag U - 1|", statistics.unitarity_deviation),
            ("largest |det U - 1|", statistics.determinant_deviation),
        )
    )


def _is_made(field: GaugeField) -> bool:
    """True for links that somebody made of SU(3): with signs or phases, or most of them smeared."""
    statistics = field.statistics
    if statistics.unitarity_deviation <= GROUP_TOLERANCE:
        return True
    some = field.links.reshape(-1, 3, 3)[:: max(1, field.links.size // SAMPLED)]
    with np.errstate(all="ignore"):
        products = np.abs(some.conj().swapaxes(-1, -2) @ some - np.eye(3)).max(axis=(1, 2))
    return bool(np.median(products) > GROUP_TOLERANCE)


@dataclass(frozen=True)
class CheckReport:
    """Findings of `quarkline check` on a file; all numbers are of the links as stored."""

    path: Path
    format: str
    lattice: Lattice
    precision: int
    plaquette: Plaquette
    link_trace: float
    unitarity_deviation: float
    determinant_deviation: float
    checks: tuple[Check, ...]
    metadata: dict[str, str]
    notes: tuple[str, ...] = ()
    """What is not wrong, but should be known: a checksum that is absent."""

    @property
    def ok(self) -> bool:
        """True if every checksum and header value matches and the links are in SU(3)."""
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.ok)

    def as_dict(self) -> dict[str, Any]:
        """The report in JSON's types; a number that is not finite becomes None."""
        return {"path": str(self.path), "ok": self.ok} | {
            name: _plain(value) for name, value in vars(self).items() if name != "path"
        }


def _plain(value: Any) -> Any:
    """A value of a report in JSON's types; of a check all but its remedy."""
    if isinstance(value, Check):
        return {name: _plain(each) for name, each in vars(value).items() if name != "remedy"}
    if isinstance(value, Plaquette):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Lattice):
        return list(value.extents)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _printed(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"


def links_to_write(path: Path, links: NDArray, lattice: Lattice, precision: int) -> NDArray:
    """The links in the precision of a file to write; InputError for another shape or an unknown precision."""
    if precision not in (32, 64):
        raise fault(path, f"cannot be written with a precision of {precision} bits", "give 32 or 64")
    expected = (4, 2, lattice.half_volume, 3, 3)
    if links.shape != expected:
        raise fault(
            path, f"links of shape {links.shape} are not those of a {lattice} lattice", f"give {expected}"
        )
    return links.astype(np.complex64 if precision == 32 else np.complex128, copy=False)


def time_stamp() -> str:
    """The time now as SciDAC's and MILC's headers print it, such as Tue Mar 13 15:47:22 2012 UTC."""
    return datetime.now(UTC).strftime("%a %b %d %H:%M:%S %Y UTC")
