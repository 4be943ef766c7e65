"""`quarkline open`: blinded results without their secret factor; and the keys of blindings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline import InputError
from stages.lqcd.analysis.blinding import Blinding
from workflows.commands.options import SetOption, StoreOption
from workflows.stores import project_and_store
from workflows.terminal import say


def open(
    workflow: Annotated[
        Path | None, typer.Argument(metavar="WORKFLOW", help="The YAML file of a blinded workflow.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The key of its blinding.", show_default=False)
    ] = None,
    new_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead, write a new random key into this file.")
    ] = None,
    changes: SetOption = None,
    store: StoreOption = None,
) -> None:
    """Print blinded results without their secret factor, with the stated corrections.

    The store stays blinded. For open pages and files remove its folder `hvp_average` and, from the file,
    `blind`, and run it again: only the analysis is repeated.

    Example: quarkline open --new-key ~/keys/hvp.key

    Example: quarkline open g2_hvp.yaml --key ~/keys/hvp.key
    """
    if new_key is not None and workflow is None and key is None:
        Blinding().write(new_key)
        say(f"new key: {new_key}. Keep it away from the results, and do not lose it")
        return
    if workflow is None or key is None or new_key is not None:
        raise InputError("give a workflow's file and --key FILE, or --new-key FILE by itself")
    project, results = project_and_store(workflow, store, changes)
    say(project.definition.opened(project.parameters, results, key))
