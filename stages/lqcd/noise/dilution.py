"""Dilution: the partition of a noise vector into subsets that are solved for apart.

The sum over subsets s of eta_s^dag K D^-1 eta_s estimates the same trace as eta^dag K D^-1 eta, without the
noise of the pairs of sites that lie in different subsets.

Parity comes free for a staggered trace. Every solve is of the even-odd normal operator 4m^2 - D_po D_op,
which leaves the two parities of a source decoupled: a source on both costs two solves, as two sources on
one each do. So a subset always lies on one parity, and what is listed here is per parity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, suggestion
from stages.lqcd.kernels import random_numbers as kernels
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T
from stages.lqcd.noise.vectors import COLOURS

OPTIONS = ("color", "time", "displacement")


class Subset(NamedTuple):
    """Sites of `parity` with this colour, t mod k and coordinates mod d; None where not diluted."""

    parity: int
    colour: int | None
    time: int | None
    displacement: tuple[int, int, int, int] | None


@dataclass(frozen=True)
class Partition:
    """The subsets of one parity; `member`, int32 ``[site, 3]``, tells which holds each site and colour."""

    parity: int
    subsets: tuple[Subset, ...]
    member: NDArray[np.int32]


@dataclass(frozen=True)
class Dilution:
    """Subsets that a noise vector is cut into, beyond its two parities.

    `color`: each colour apart. `time`: an integer k takes every k-th slice together (k interlaced subsets),
    'full' each slice apart. `displacement`: d^4 subsets by the coordinates modulo d; d = 2 gives 8 even and
    8 odd ones. Options multiply; combinations that hold no site are left out.
    """

    color: bool = False
    time: int | Literal["full"] | None = None
    displacement: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.color, bool):
            raise InputError(f"dilution.color must be true or false, got {self.color!r}")
        if self.time != "full":
            _check_count("time", self.time, "a number of slices, or 'full'")
        _check_count("displacement", self.displacement, "a number of sites")

    @classmethod
    def parse(cls, options: Mapping[str, Any] | None) -> Self:
        """Dilution of a parameter file, ``{color: true, time: 4, displacement: 2}``; None is no dilution."""
        for name in options or {}:
            if name not in OPTIONS:
                raise InputError(f"unknown dilution option {name!r}{suggestion(name, OPTIONS)}")
        return cls(**(options or {}))

    def check(self, lattice: Lattice) -> None:
        """Raises InputError where an option does not divide the lattice; costs nothing on a large one."""
        self._time_period(lattice)
        self._displacement_side(lattice)

    def count(self, lattice: Lattice) -> int:
        """Number of subsets of both parities, from the options alone: an empty one counts, too."""
        side = self._displacement_side(lattice)
        places = side**4 if side % 2 == 0 else 2 * side**4
        return (COLOURS if self.color else 1) * self._time_period(lattice) * places

    def subsets(self, lattice: Lattice) -> tuple[Subset, ...]:
        """Every subset, the even ones first."""
        return self.partition(lattice, EVEN).subsets + self.partition(lattice, ODD).subsets

    @lru_cache(maxsize=4)  # noqa: B019 - one a run
    def partition(self, lattice: Lattice, parity: int) -> Partition:
        """The subsets of one parity. Raises InputError where an option does not divide the lattice."""
        period, side = self._time_period(lattice), self._displacement_side(lattice)
        code = lattice.coordinates(parity)[:, T].astype(np.int64) % period
        for column in lattice.coordinates(parity).T:
            code = code * side + column % side
        codes, site_class = np.unique(code, return_inverse=True)
        colours = list(range(COLOURS)) if self.color else [None]
        subsets = tuple(
            Subset(parity, colour, time if self.time else None, tuple(offset) if self.displacement else None)
            for time, *offset in np.array(
                np.unravel_index(codes, (period, side, side, side, side))
            ).T.tolist()
            for colour in colours
        )
        colour_number = np.arange(COLOURS) if self.color else np.zeros(COLOURS, int)
        member = len(colours) * site_class[:, None] + colour_number
        return Partition(parity, subsets, member.astype(np.int32))

    def _time_period(self, lattice: Lattice) -> int:
        if self.time is None:
            return 1
        period = lattice.time_extent if self.time == "full" else self.time
        if lattice.time_extent % period:
            raise InputError(
                f"dilution.time = {period} does not divide the time extent {lattice.time_extent} "
                f"of the lattice {lattice}: take a divisor, or 'full'"
            )
        return period

    def _displacement_side(self, lattice: Lattice) -> int:
        side = self.displacement or 1
        if any(extent % side for extent in lattice.extents):
            raise InputError(
                f"dilution.displacement = {side} does not divide every extent of the lattice {lattice}: "
                f"take a divisor of {np.gcd.reduce(lattice.extents)}"
            )
        return side


def _check_count(name: str, value: object, meaning: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InputError(f"dilution.{name} must be {meaning}, at least 1, got {value!r}")


def dilute(noise: Array, partition: Partition, columns: range) -> Array:
    """Columns of the diluted noise, ``[site, 3, len(columns)]``, zero outside their subset.

    NumPy or CuPy like `noise`.

    `noise`: ``[site, 3, N]`` on the partition's parity. Column number n * subsets + s is noise vector n on
    subset s, so that a range of columns is a block of right-hand sides however the block falls on the noise
    vectors.
    """
    vectors, subsets = np.divmod(np.arange(columns.start, columns.stop), len(partition.subsets))
    return kernels.masked(noise, partition.member, vectors, subsets)
