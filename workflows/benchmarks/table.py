"""The benchmark's lines as a table that grows while they are measured; it is Markdown, too."""

from __future__ import annotations

from workflows.benchmarks.speed import Bench, Speed

COLUMNS = {
    "family": 10,
    "kernel": 15,
    "lattice": 11,
    "precision": 13,
    "N": 4,
    "per site, rhs": 13,
    "GFLOP/s": 8,
    "GB/s reuse": 10,
    "GB/s naive": 10,
    "of copy": 7,
    "energy": 9,
}
TEXT_COLUMNS = 4


def heading(bench: Bench) -> str:
    """The machine and its copy bandwidth, and the head of the table."""
    machine = bench.machine
    ruler = ["-" * width + ("-" if n < TEXT_COLUMNS else ":") for n, width in enumerate(COLUMNS.values())]
    return "\n".join(
        [
            f"{machine.name}; copy bandwidth of this run {bench.copy_bandwidth:.1f} GB/s, read and written",
            "",
            _row(list(COLUMNS)),
            f"|{'|'.join('-' + part for part in ruler)}|",
        ]
    )


def row(speed: Speed) -> str:
    """One line."""
    return _row(
        [
            speed.family,
            speed.kernel,
            speed.lattice,
            speed.precision,
            str(speed.rhs),
            _seconds(speed.picoseconds * 1e-12),
            f"{speed.gflops:.0f}" if speed.gflops >= 100 else f"{speed.gflops:.3g}",
            f"{speed.perfect_reuse_bandwidth:.1f}",
            f"{speed.naive_bandwidth:.1f}",
            f"{speed.fraction_of_copy:.2f}",
            "-" if speed.joules is None else f"{speed.joules:.3g} J",
        ]
    )


def _row(cells: list[str]) -> str:
    padded = (
        cell.ljust(width) if n < TEXT_COLUMNS else cell.rjust(width)
        for n, (cell, width) in enumerate(zip(cells, COLUMNS.values(), strict=True))
    )
    return f"| {' | '.join(padded)} |"


def _seconds(value: float) -> str:
    """Seconds as text with the unit that leaves few digits before the point."""
    for unit, name in ((1e-12, "ps"), (1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")):
        if value < 1e3 * unit:
            return f"{value / unit:.4g} {name}"
    return f"{value:.4g} s"
