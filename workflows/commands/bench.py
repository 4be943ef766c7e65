"""`quarkline bench`: the speed of the kernels on this machine, against its own copy bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from workflows.benchmarks.families import bench_of, speeds
from workflows.benchmarks.speed import Speed
from workflows.documents import Document

DOCUMENT = Document(
    "bench",
    {"machine": str, "backend": str, "copy_bandwidth": float, "lines": list[Speed]},
    about="Speeds, beside the machine's own copy bandwidth in GB/s.",
)

FAMILIES = ("dslash", "normal", "wilson", "blas", "solver", "links", "end-to-end")
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
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON when all is measured; the table goes to stderr.")
    ] = False,
) -> None:
    """Measure the speed of what a run spends its time on, against this machine's own copy bandwidth.

    dslash, normal operator, Wilson-clover (wilson), block linear algebra (blas), an iteration of each solver,
    construction of HISQ links, and a small g-2 run end to end. A line has the time per site and right-hand
    side; GFLOP/s; GB/s if every number is moved once (reuse), and if each neighbour is read by every site
    that it neighbours (naive); the first of these as a fraction of the copy bandwidth; on a GPU, the joules
    of one application, iteration, construction or run. Half precision, 16 bits with a scale per site, is that
    of the dslash on a GPU alone; the solvers' single is double-single. The end-to-end run has a lattice of
    its own unless one is given.

    About a minute on two cores, about two on a GPU.

    Example: quarkline bench --only dslash,solver --rhs 8,16

    Example: quarkline bench --backend cuda --json > gpu.json
    """
    families, precisions = _chosen("--only", only, FAMILIES), _chosen("--precision", precision, PRECISIONS)
    asked = bench_of(backend, lattice, _widths(rhs), precisions)
    typer.echo(asked.heading, err=json)
    lines = []
    for speed in speeds(asked, families):
        lines.append(speed)
        typer.echo(speed.row, err=json)
    if json:
        machine = asked.machine
        measured = {"copy_bandwidth": asked.copy_bandwidth, "lines": lines}
        DOCUMENT.print({"machine": machine.name, "backend": machine.backend, **measured})


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
