"""One line of the benchmark: how fast something ran, against what it computes and moves; their table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks.machine import Machine, Work

DTYPES: dict[str, np.dtype] = {"single": np.dtype(np.complex64), "double": np.dtype(np.complex128)}
MOST_RHS = 64

COLUMNS = {
    "family": "<10",
    "kernel": "<15",
    "lattice": "<11",
    "precision": "<13",
    "N": ">4",
    "per site, rhs": ">13",
    "GFLOP/s": ">8",
    "GB/s reuse": ">10",
    "GB/s naive": ">10",
    "of copy": ">7",
    "energy": ">9",
}
"""Of the table of speeds, which grows while they are measured and is Markdown, too: alignment and width."""


RATIO = ">7"
"""Layout of the column that compares with earlier figures."""


@dataclass(frozen=True)
class SiteCost:
    """Per site and right-hand side.

    perfect_bytes: every number read or written once. naive_bytes: a neighbour is read by each site that it
    neighbours.
    """

    flops: float
    perfect_bytes: float
    naive_bytes: float

    def __add__(self, other: SiteCost) -> SiteCost:
        return SiteCost(
            self.flops + other.flops,
            self.perfect_bytes + other.perfect_bytes,
            self.naive_bytes + other.naive_bytes,
        )

    def __rmul__(self, factor: float) -> SiteCost:
        return SiteCost(factor * self.flops, factor * self.perfect_bytes, factor * self.naive_bytes)


def streaming(flops: float, fields: float, dtype: np.dtype) -> SiteCost:
    """Cost of touching each number of `fields` blocks ``[site, 3, N]`` once; `flops` per site."""
    moved = fields * 3 * dtype.itemsize
    return SiteCost(flops, moved, moved)


@dataclass(frozen=True)
class Speed:
    """Time of one `unit` of work and what follows from it.

    picoseconds: per (site, right-hand side) of the fields concerned. gflops: GFLOP/s. Bandwidths in GB/s;
    fraction_of_copy: of the perfect-reuse one. joules: energy of one unit.
    """

    family: str
    kernel: str
    lattice: str
    precision: str
    rhs: int
    unit: str
    seconds: float
    picoseconds: float
    gflops: float
    perfect_reuse_bandwidth: float
    naive_bandwidth: float
    fraction_of_copy: float
    joules: float | None

    def row(self, *ratios: float | None) -> str:
        """One line of the table; ratios: times over earlier ones, None where there is no earlier one."""
        return _row(
            self.family,
            self.kernel,
            self.lattice,
            self.precision,
            str(self.rhs),
            _seconds(self.picoseconds * 1e-12),
            f"{self.gflops:.0f}" if self.gflops >= 100 else f"{self.gflops:.3g}",
            f"{self.perfect_reuse_bandwidth:.1f}",
            f"{self.naive_bandwidth:.1f}",
            f"{self.fraction_of_copy:.2f}",
            "-" if self.joules is None else f"{self.joules:.3g} J",
            *("-" if ratio is None else f"{ratio:.3f}" for ratio in ratios),
        )


@dataclass(frozen=True)
class Bench:
    """A machine and the fields measured on it.

    run_lattice is that of the end-to-end run; copy_bandwidth in GB/s.
    """

    machine: Machine
    lattice: Lattice
    run_lattice: Lattice
    widths: tuple[int, ...]
    precisions: tuple[str, ...]
    copy_bandwidth: float

    def __post_init__(self) -> None:
        for precision in self.precisions:
            if precision not in (*DTYPES, "half"):
                raise InputError(f"precision must be 'half', 'single' or 'double', got {precision!r}")
        for rhs in self.widths:
            if not 1 <= rhs <= MOST_RHS:
                raise InputError(f"a block holds 1 to {MOST_RHS} right-hand sides, got {rhs} (--rhs)")

    def heading(self, *more: str) -> str:
        """The machine and its copy bandwidth, and the head of the table; more: names of further columns."""
        ends = {"<": "-", ">": ":"}
        layouts = [*COLUMNS.values(), *[RATIO] * len(more)]
        rulers = ("-" * (int(layout[1:]) + 1) + ends[layout[0]] for layout in layouts)
        return "\n".join(
            [
                f"{self.machine.name}; copy bandwidth of this run {self.copy_bandwidth:.1f} GB/s, "
                "read and written",
                "",
                _row(*COLUMNS, *more),
                f"|{'|'.join(rulers)}|",
            ]
        )

    @property
    def dtypes(self) -> dict[str, np.dtype]:
        """The complex types to measure, by precision."""
        return {name: dtype for name, dtype in DTYPES.items() if name in self.precisions}

    @property
    def blocks(self) -> Iterator[tuple[str, np.dtype, int]]:
        """Precision, its dtype and number of right-hand sides, of all that are to be measured."""
        for precision, dtype in self.dtypes.items():
            for rhs in self.widths:
                yield precision, dtype, rhs

    def measured(self, work: Work, cost: SiteCost, sites: int, **names: Any) -> Speed:
        """The speed of a kernel that is called again and again, with its energy."""
        seconds = self.machine.seconds(work)
        return self.speed(seconds, self.machine.joules(work, seconds), cost, sites, **names)

    def speed(
        self, seconds: float, joules: float | None, cost: SiteCost, sites: int, *, rhs: int, **names: Any
    ) -> Speed:
        """The line of one unit that took `seconds`, its cost counted per site of `sites` and per rhs.

        names: fields of `Speed`; an application on the bench's lattice unless they say otherwise.
        """
        each = seconds / (sites * rhs) * 1e9
        return Speed(
            rhs=rhs,
            seconds=seconds,
            picoseconds=each * 1e3,
            gflops=cost.flops / each,
            perfect_reuse_bandwidth=cost.perfect_bytes / each,
            naive_bandwidth=cost.naive_bytes / each,
            fraction_of_copy=cost.perfect_bytes / each / self.copy_bandwidth,
            joules=joules,
            **{"unit": "application", "lattice": str(self.lattice), **names},
        )


def _row(*cells: str) -> str:
    layouts = [*COLUMNS.values(), *[RATIO] * (len(cells) - len(COLUMNS))]
    padded = (f"{cell:{layout}}" for cell, layout in zip(cells, layouts, strict=True))
    return f"| {' | '.join(padded)} |"


def _seconds(value: float) -> str:
    """Seconds as text with the unit that leaves few digits before the point."""
    for unit, name in ((1e-12, "ps"), (1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")):
        if value < 1e3 * unit:
            return f"{value / unit:.4g} {name}"
    return f"{value:.4g} s"
