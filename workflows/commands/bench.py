"""`quarkline bench`: the speed of the kernels on this machine, against its own copy bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from workflows.benchmarks.families import bench_of, speeds
from workflows.benchmarks.ledger import read_ledger
from workflows.benchmarks.machine import machine_of
from workflows.benchmarks.speed import Speed
from workflows.documents import Document
from workflows.terminal import EXIT_CODES, put, say

DOCUMENT = Document(
    "bench",
    {
        "quarkline": str,
        "measured": str,
        "machine": str,
        "backend": str,
        "copy_bandwidth": float,
        "lines": list[Speed],
    },
    about="Speeds, beside the machine's own copy bandwidth in GB/s.",
)

FAMILIES = (
    *("dslash", "normal", "wilson", "blas", "solver", "multigrid"),
    *("eigen", "links", "mesons", "end-to-end"),
)
PRECISIONS = ("half", "single", "double")


def bench(
    backend: Annotated[Literal["cpu", "cuda"], typer.Option(help="What computes.")] = "cpu",
    only: Annotated[
        str, typer.Option(metavar="FAMILY,...", help=f"Some of {', '.join(FAMILIES)}.", show_default="all")
    ] = ",".join(FAMILIES),
    lattice: Annotated[
        tuple[int, int, int, int] | None,
        typer.Option(metavar="X Y Z T", show_default="16 16 16 32 on cpu, 32 32 32 48 on cuda"),
    ] = None,
    rhs: Annotated[
        str | None,
        typer.Option(
            metavar="N,...", help="Right-hand sides.", show_default="1,16 on cpu, 1,8,16,32 on cuda"
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(metavar="PRECISION,...", help=f"Some of {', '.join(PRECISIONS)}.", show_default="all"),
    ] = ",".join(PRECISIONS),
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Earlier --json output of such a machine, the last figures of several: print ratios of "
            "times, end with code 1 if a line takes 5 % longer.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON when all is measured; the table goes to stderr.")
    ] = False,
) -> None:
    """Measure the speed of a run's main parts, relative to this machine's own copy bandwidth.

    dslash, normal operator, Wilson-clover (wilson), block linear algebra (blas), an iteration of each solver,
    multigrid setup and solves, eigenvectors (eigen), construction of HISQ links, meson fields of 500 low
    modes (32 on a CPU) beside the product by BLAS of their shape (mesons), and a small g-2 run end to end. A
    line has the time per site and right-hand side; GFLOP/s; GB/s if every number is moved once
    (reuse), and if each neighbour is read by every site that it neighbours (naive); the first of these as a
    fraction of the copy bandwidth; on a GPU, the joules of one application, iteration, construction or run.
    Half precision, 16 bits with a scale per site, is that of the dslash and of solvers on a GPU only; the
    solvers' single is double-single. Multigrid, eigenvectors and the end-to-end run have a smaller lattice
    unless one is given.

    Example: quarkline bench --only dslash,solver --rhs 8,16

    Example: quarkline bench --backend cuda --json > gpu.json

    Example: quarkline bench --backend cuda --against gpu.json
    """
    families, precisions = _chosen("--only", only, FAMILIES), _chosen("--precision", precision, PRECISIONS)
    earlier = against and read_ledger(against, machine_of(backend))
    asked = bench_of(backend, lattice, _widths(rhs), precisions)
    put(asked.heading(*["ratio"] if earlier else []), err=json)
    lines = []
    for speed in speeds(asked, families):
        lines.append(speed)
        put(speed.row(*[earlier.ratio(speed)] if earlier else []), err=json)
    if json:
        machine = asked.machine
        measured = {"copy_bandwidth": asked.copy_bandwidth, "lines": lines}
        made = {
            "quarkline": version("quarkline"),
            "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        DOCUMENT.print({**made, "machine": machine.name, "backend": machine.backend, **measured})
    if earlier:
        words, slower = earlier.verdict(lines)
        say(words, err=json)
        if slower:
            raise typer.Exit(EXIT_CODES["failed"])


def _chosen(option: str, text: str, known: Sequence[str]) -> list[str]:
    chosen = text.split(",")
    for name in chosen:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint=f"'{option}'")
    return chosen


def _widths(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(number) for number in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no list of numbers such as 8,16,32", param_hint="'--rhs'"
        ) from None
