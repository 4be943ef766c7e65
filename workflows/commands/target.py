"""The argument of the subcommands that look at a store: its folder, or a workflow file that names it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipeline import Store

Target = Annotated[
    Path, typer.Argument(metavar="STORE", help="A store's folder, or the workflow file that names it.")
]


def open_store(target: Path) -> Store:
    """The store in a folder, or that of a workflow file."""
    from pipeline import Store
    from workflows.catalogue import load_project

    is_file = target.is_file() or target.suffix in (".yaml", ".yml")
    return Store(load_project(target).store if is_file else target)
