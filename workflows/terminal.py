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


class LostStreamError(FailedError):
    """Error of a terminal that is gone, or of a file of output on a full disk."""


def put(text: str, *, err: bool = False) -> None:
    """Write lines to the terminal as they are.

    Raises:
        LostStreamError: they cannot be written.
    """
    try:
        typer.echo(text, err=err)
    except BrokenPipeError:  # of `| head`, which has read enough
        raise
    except OSError as error:
        raise LostStreamError(lost_stream(error, err=err)) from error


def lost_stream(error: OSError, *, err: bool = False) -> str:
    """A sentence on a stream that cannot be written; what was still to be written is dropped."""
    with suppress(OSError, ValueError):  # what is in the stream's buffer would fail again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if err else sys.stdout).fileno())
    name = "standard error" if err else "standard output"
    return f"{name} cannot be written ({error.strerror or error}): send it elsewhere, or make room there"


def say(text: str, *, err: bool = False) -> None:
    """Write lines to the terminal, with names of files and configurations as they are."""
    put(literal_lines(text), err=err)


def tell(text: str, *, err: bool = False) -> None:
    """Write lines as far as that can be done: a terminal that is lost or a full disk ends no run."""
    with suppress(LostStreamError, BrokenPipeError):
        say(text, err=err)
