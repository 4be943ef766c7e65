"""`quarkline open`: blinded results without their secret factor; and the keys of blindings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline import InputError
from stages.lqcd.analysis.blinding import Blinding
from stages.lqcd.analysis.hvp_budget import HvpBudget
from stages.lqcd.analysis.scale import Measured
from workflows.commands.options import JsonOption, SetOption, StoreOption
from workflows.documents import Document
from workflows.publishing import results_of
from workflows.stores import project_and_store

DOCUMENT = Document(
    "open",
    {
        "new_key": Annotated[Path | None, "The file that a new key was written into."],
        "budgets": Annotated[list[HvpBudget], "Of each window, in 1e-10."],
        "totals": Annotated[list[Measured], "Value and error of each budget, in 1e-10."],
    },
    about="Blinded results without their secret factor, or a new key.",
)


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
    json: JsonOption = False,
) -> None:
    """Print blinded results without their secret factor, with the stated corrections.

    They are those of the file as it is now: a changed analysis is computed first.
    The store stays blinded. For open pages and files remove its folders `hvp_average` and `hvp_contribution`
    and, from the file, `blind`, and run it again: only the analysis is repeated.

    Example: quarkline open --new-key ~/keys/hvp.key

    Example: quarkline open g2_hvp.yaml --key ~/keys/hvp.key
    """
    if new_key is not None and workflow is None and key is None:
        Blinding().write(new_key)
        text, budgets = f"new key: {new_key}. Keep it away from the results, and do not lose it", []
    elif workflow is None or key is None or new_key is not None:
        raise InputError("give a workflow's file and --key FILE, or --new-key FILE by itself")
    else:
        project, results = project_and_store(workflow, store, changes)
        own = results_of(project, results, f"{workflow}{project.options}").project
        budgets = own.definition.opened(own.parameters, results, key)
        text = "\n\n".join(map(str, budgets))
    totals = [Measured(each.value, each.error, each.quantity) for each in budgets]
    DOCUMENT.show({"new_key": new_key, "budgets": budgets, "totals": totals}, text=text, as_json=json)
