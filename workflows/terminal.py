"""Lines that a command writes to its terminal, and its exit codes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import typer

from pipeline.declare.text import literal_lines
from stages.base.errors import InputError

EXIT_CODES = {"done": 0, "failed": 1, "mistake": 2, "time limit": 3, "elsewhere": 4, "interrupted": 130}
"""failed: something failed or is missing. mistake: in the command, a file or a store. elsewhere: the rest is
in work by other drivers of the store."""


class FailedError(InputError):
    """Error of a command that cannot give what it was asked for, without anybody's mistake: exit code 1."""


def say(text: str, *, err: bool = False) -> None:
    """Write lines to the terminal, with names of files and configurations as they are."""
    typer.echo(literal_lines(text), err=err)


def tell(text: str, *, err: bool = False) -> None:
    """Write lines as far as that can be done: a terminal that is lost or a full disk ends no run."""
    try:
        say(text, err=err)
    except OSError:
        with suppress(OSError, ValueError):  # what is in the stream's buffer would fail again at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if err else sys.stdout).fileno())
