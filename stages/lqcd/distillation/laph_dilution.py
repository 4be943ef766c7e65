"""Dilution of LapH noise in time, spin and eigenvector (hep-lat/0505023, arXiv:1104.3870)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

from stages.base.errors import InputError, suggestion
from stages.lqcd.kernels.gamma import SPINS

INTERLACE = re.compile(r"interlace-([1-9]\d*)")


class Subsets(NamedTuple):
    """Numbers of subsets that each index is cut into: index i is in subset i modulo their number."""

    time: int
    spin: int
    eigenvector: int


@dataclass(frozen=True)
class LaphDilution:
    """Projectors P_d, one for each combination of a subset of times, one of spins and one of eigenvectors.

    Of each index 'full' (every value apart), 'interlace-n' (n subsets, by the index modulo n) or 'none'. With
    sum_d P_d = 1 the sum over d of P_d rho (P_d rho)^H estimates 1, without the noise of elements between
    subsets.
    """

    time: str = "none"
    spin: str = "none"
    eigenvector: str = "none"

    def __post_init__(self) -> None:
        for name in INDICES:
            value = getattr(self, name)
            if value not in ("full", "none") and not INTERLACE.fullmatch(str(value)):
                raise InputError(
                    f"dilution.{name} must be 'full', 'none' or, for n subsets, 'interlace-n', got {value!r}"
                )

    @classmethod
    def parse(cls, options: Mapping[str, Any] | None) -> Self:
        """Dilution of a file's ``{time: full, spin: full, eigenvector: interlace-8}``; None is none."""
        for name in options or {}:
            if name not in INDICES:
                raise InputError(f"unknown dilution option {name!r}{suggestion(name, INDICES)}")
        return cls(**(options or {}))

    def subsets(self, time_extent: int, eigenvectors: int) -> Subsets:
        """Numbers of subsets; InputError where one does not divide its index's extent."""
        extents = (time_extent, SPINS, eigenvectors)
        return Subsets(*(self._count(name, extent) for name, extent in zip(INDICES, extents, strict=True)))

    def _count(self, name: str, extent: int) -> int:
        value = getattr(self, name)
        if value in ("full", "none"):
            return extent if value == "full" else 1
        count = int(value.removeprefix("interlace-"))
        if extent % count:
            things = {"time": "time slices", "spin": "spins", "eigenvector": "eigenvectors"}[name]
            raise InputError(
                f"dilution.{name} = {value} does not divide the {extent} {things}: "
                f"take a divisor of {extent}, 'full' or 'none'"
            )
        return count


INDICES = tuple(field.name for field in fields(LaphDilution))
