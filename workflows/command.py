"""The `quarkline` command: its subcommands, and every mistake of a user as one message and an exit code.

Exit codes: 0 done, 1 something failed or is missing, 2 a mistake in the command, a file or a store, 3 stopped
by the time limit, 4 the rest is in work by other drivers, 130 interrupted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from pipeline.declare.text import literal_lines
from stages.base.errors import InputError
from workflows.documents import ERROR, Mistake
from workflows.machine_faults import machine_fault
from workflows.names import workflow_names
from workflows.signatures import without_engine
from workflows.terminal import EXIT_CODES, FailedError, LostStreamError, put

PANELS = {
    "Workflows": (
        "init",
        "run",
        "submit",
        "plan",
        "status",
        "dashboard",
        "report",
        "export",
        "open",
        "compare",
        "schema",
    ),
    "Files, stores": ("check", "convert", "verify", "gc"),
    "Moving": ("merge", "pull", "push"),
    "Machines": ("certify", "bench"),
}
"""Modules of `workflows.commands`, each with a function of its name, by their panel in `--help`."""


def show_version(asked: bool) -> None:
    """Print the version, where it is asked for, and end."""
    if asked:
        put(f"quarkline {version('quarkline')}")
        raise typer.Exit


HELP = {"-h", "--help"}

USAGE_ERROR: Any = typer.BadParameter.__base__
"""Error of all mistakes in a command line, of Typer's own copy of Click where it has one."""


def _refuse_value(**_: object) -> None:
    raise USAGE_ERROR("--help stands where an option's value is expected: give it last, and alone")


def summary(name: str) -> str:
    """First line of a command's help, out of its module's text: the module imports the engine."""
    text = (Path(__file__).parent / "commands" / f"{name}.py").read_text(encoding="utf-8")
    found = re.search(rf'^def {name}\(.*?"""(.*?)$', text, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def command(name: str) -> TyperCommand:
    """The command that a module of `workflows.commands` has under its own name."""
    single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    single.command()(getattr(import_module(f"workflows.commands.{name}"), name))
    return cast(TyperCommand, typer.main.get_command(single))


class Commands(TyperGroup):
    """The subcommands; under `--json` what ends one without a result is a document on standard output."""

    wants_json = False
    """Whether the command line that is at work asks for JSON."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = dict.fromkeys(chain(*PANELS.values()))  # type: ignore[assignment] # each read when asked for

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """The subcommand of a name as a line of `--help`."""
        panels = (panel for panel, names in PANELS.items() if cmd_name in names)
        return next((TyperCommand(cmd_name, help=summary(cmd_name), rich_help_panel=p) for p in panels), None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The subcommand that a command line begins with, and its options."""
        name, line, rest = super().resolve_command(ctx, args)
        if line and HELP.isdisjoint(rest):
            line = command(str(name))
        elif line:
            with without_engine():
                line = command(str(name))
            line.callback = _refuse_value
        return name, line, rest

    def make_context(self, info_name: str | None, args: list[str], *others: Any, **options: Any) -> Any:
        """Read the options of the command itself."""
        self.wants_json = "--json" in args
        with self._telling():
            return super().make_context(info_name, args, *others, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a subcommand."""
        with self._telling():
            return super().invoke(ctx)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Errors go on; what is wrong with an option is told without a type checker's words."""
        try:
            yield
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            self._tell(error.format_message(), "mistake")
            raise
        except FailedError as error:
            self._tell(str(error), "failed")
            raise
        except USAGE_ERROR as error:
            if "extra argument" in error.message:
                error.message += ": put shell patterns into quotes, and repeat an option for each value"
            self._tell(str(error), "mistake")
            raise
        except InputError as error:
            self._tell(str(error), "mistake")
            raise
        except KeyboardInterrupt:
            self._tell("interrupted", "interrupted")
            raise
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if text := machine_fault(error):
                self._tell(text, "failed")
                raise FailedError(text) from error
            self._tell(f"{type(error).__name__}: {error}", "fault")
            raise

    def _tell(self, text: str, kind: Mistake) -> None:
        if self.wants_json:
            with suppress(LostStreamError):
                ERROR.print({"error": text, "kind": kind, "exit_code": EXIT_CODES.get(kind, 1)})


app = typer.Typer(
    name="quarkline",
    cls=Commands,
    help="Lattice-QCD analysis pipeline: from gauge configurations to disconnected loops, mesons and their "
    "energies with error bars.",
    epilog=f"Workflows: {', '.join(workflow_names())}. Begin with: quarkline init g2_disconnected",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": sorted(HELP)},
)


@app.callback()
def options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show the version and exit.", callback=show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of the command itself."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; returns its exit code."""
    try:
        app(args=list(sys.argv[1:] if arguments is None else arguments), prog_name="quarkline")
    except SystemExit as exit_request:
        return int(exit_request.code or 0)
    except InputError as error:
        print(literal_lines(f"error: {error}"), file=sys.stderr)
        return EXIT_CODES["failed" if isinstance(error, FailedError) else "mistake"]
    return 0
