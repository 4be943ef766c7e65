"""`quarkline bench`: the speed of the kernels on this machine, against its own copy bandwidth."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from workflows.commands.options import JsonOption

bench = typer.Typer(help="Measure the speed of kernels on this machine.", no_args_is_help=True)


@bench.callback()
def _several() -> None:
    """Measure the speed of kernels on this machine, as a fraction of its own copy bandwidth."""


@bench.command("hisq-dslash")
def hisq_dslash(
    lattice: Annotated[tuple[int, int, int, int], typer.Option(metavar="X Y Z T")] = (16, 16, 16, 32),
    rhs: Annotated[int, typer.Option(min=1, max=64, help="Right-hand sides.")] = 16,
    precision: Annotated[Literal["single", "double"], typer.Option()] = "single",
    backend: Annotated[Literal["cpu", "cuda"], typer.Option()] = "cpu",
    json: JsonOption = False,
) -> None:
    """Time the HISQ dslash of one parity.

    Prints time per site and right-hand side, GB/s with perfect reuse of neighbours and with none, the copy
    bandwidth measured in the same run, and the fraction of it.

    Example: quarkline bench hisq-dslash --lattice 16 16 16 32 --rhs 16 --precision single
    """
    from json import dumps

    from workflows.bench import hisq_dslash_bench, table

    speed = hisq_dslash_bench(lattice, rhs, precision, backend)
    typer.echo(dumps(speed, indent=2) if json else table(speed))
