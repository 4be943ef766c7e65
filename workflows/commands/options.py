"""Options that several subcommands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.declare.duration import seconds as duration


def fraction(text: str) -> float:
    """Number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise typer.BadParameter(f"{text!r} is no share: give a number from 0 to 1, such as 0.01")
    return value


def count(text: str) -> int:
    """Whole number of at least 1."""
    if not (text.isdecimal() and int(text)):
        raise typer.BadParameter(f"{text!r} is no whole number of at least 1")
    return int(text)


def count_option(help: str, default: str, *names: str, metavar: str = "N") -> Any:
    """Option with a whole number of at least 1.

    Args:
        help: what is counted.
        default: number where it is left out.
        names: of the option, that of its argument unless given.
        metavar: name of the number in the help.
    """
    return typer.Option(*names, metavar=metavar, parser=count, help=help, show_default=default)


WorkflowFile = Annotated[Path, typer.Argument(metavar="WORKFLOW", help="The workflow's YAML file.")]
Target = Annotated[
    Path, typer.Argument(metavar="STORE", help="A store's folder, s3://bucket/folder, or a workflow file.")
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", metavar="FOLDER", help="Store to use instead of the file's `store`."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="CLUSTER",
        help="A cluster's YAML file (quarkline init slurm_gpu writes one), local (CPU), cuda (one worker per "
        "GPU), slurm, pbs, lsf or another batch system, or a running scheduler's tcp://HOST:PORT or "
        "scheduler file.",
        show_default="the file's section `cluster`, or local",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Use another value of a key, without editing the file, such as masses.light=0.1, "
        "sources.times.0=4 or cluster.walltime=04:00:00; may be given several times.",
    ),
]
GpusPerWorkerOption = Annotated[
    int | None,
    count_option(
        "Number of GPUs over which each worker divides its lattice: more than one if one has too little "
        "memory. plan says how many are needed. It must divide a machine's number of GPUs.",
        "as in the cluster's section, or 1",
        "--gpus-per-worker",
        metavar="K",
    ),
]
CheckOption = Annotated[
    float | None,
    typer.Option(
        "--check",
        metavar="FRACTION",
        parser=fraction,
        help="Fraction of chunks in which some solves are repeated by independent code, to detect silent "
        "arithmetic errors; 0 for none.",
        show_default="0.01",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

LAST_PORT = 65535


def seconds(text: str) -> float:
    """A duration such as 90, 90s, 45m, 1h30m or 2d; or HH:MM:SS, as batch systems write it."""
    try:
        return float(duration(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def port(text: str) -> int:
    """Port of this machine; 0 for any."""
    if not (text.isdecimal() and int(text) <= LAST_PORT):
        raise typer.BadParameter(f"{text!r} is no port: give 1 to {LAST_PORT}, or 0 for any free one")
    return int(text)


def time_limit(text: str) -> float:
    """A duration in which something can be done."""
    if not (limit := seconds(text)):
        raise typer.BadParameter(f"{text!r} leaves no time: give at least 1s, or no limit")
    return limit


TimeLimitOption = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="TIME",
        parser=time_limit,
        help="Stop cleanly after this time (45m, 1h30m, 01:30:00), including the cluster's start and end; "
        "the same command continues later.",
    ),
]
