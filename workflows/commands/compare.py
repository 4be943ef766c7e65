"""`quarkline compare`: two results, in units of their errors or exactly."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from pipeline import InputError, Store, open_result
from pipeline.declare.text import text_table
from pipeline.planning.workflow import file_and_changes
from pipeline.store.object_store import store_at
from stages.lqcd.analysis.jackknife import FEW, few_degrees_of_freedom
from workflows.commands.export import AVERAGE
from workflows.commands.options import JsonOption, StoreOption
from workflows.comparison import LEAST_PROBABILITY, ArrayComparison, compared
from workflows.documents import Document
from workflows.stores import project_and_store

DOCUMENT = Document(
    "compare",
    {"agree": bool, "arrays": list[ArrayComparison]},
    about="Two results, array by array.",
)


def rounding(text: str) -> float:
    """Number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise typer.BadParameter(f"{text!r} is no difference: give a number of at least 0, such as 1e-15")
    return value


PLACE = (
    "A store's folder or URL, a workflow file, or in quotes 'my.yaml --set KEY=VALUE' for a run with "
    "another value."
)


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help=PLACE)],
    second: Annotated[str, typer.Argument(metavar="B", help="The other result, given in the same way.")],
    result: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE",
            help="The result to compare, such as loops_light; NODE=OTHER if it has another name in B.",
            show_default=AVERAGE,
        ),
    ] = None,
    exactly: Annotated[
        float | None,
        typer.Option(
            "--rounding",
            metavar="X",
            parser=rounding,
            help="Instead of errors, allow differences of up to X times an array's largest number, such as "
            "1e-15; 0 requires the same bits.",
        ),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Compare two results: chi squared per degree of freedom, and the largest deviation in sigma.

    If both have jackknife samples of the same configurations, errors are those of the difference; otherwise
    the two count as independent. Chi squared includes correlations if there are more than twice as many
    samples as numbers; the table says whether it does. Results per configuration, such as loops, are
    averaged first.

    Two results differ if deviations this large have a probability below 0.001. This probability is that of
    chi squared or, without correlations, that of the largest deviation among so many numbers.

    Exit code: 0 they agree, 1 they differ, 2 they cannot be compared.

    Example: quarkline compare old-store new-store

    Example: quarkline compare my.yaml 'my.yaml --set noise.seed=99' --result loops_light

    Example: quarkline compare cpu-store gpu-store --rounding 1e-12
    """
    ours, theirs = (_place(each, store) for each in (first, second))
    found: list[ArrayComparison] = []
    for name in result or [AVERAGE]:
        own, _, other = name.partition("=")
        a = open_result(ours[0], own, workflow=ours[1])
        found += compared(a, open_result(theirs[0], other or own, workflow=theirs[1]), exactly)
    agree = all(each.agrees for each in found)
    DOCUMENT.show({"agree": agree, "arrays": found}, text=_text(found, exactly), as_json=json)
    raise typer.Exit(int(not agree))


def _place(text: str, chosen: Path | None) -> tuple[Store, str | None]:
    """The store of a result, and the file that it is of where one was named."""
    path, changes = file_and_changes(text)
    if path.endswith((".yaml", ".yml")):
        project, store = project_and_store(Path(path), chosen, changes)
        return store_at(store), project.source.label if project.source else None
    if changes:
        raise InputError(f"--set {changes[0]}: {path} is a store, and keys are set in a workflow file")
    return store_at(path), None


def _text(found: list[ArrayComparison], exactly: float | None) -> str:
    """A row for each array, what the errors are, and the verdict."""
    differ = [f"{each.node} {each.array}" for each in found if not each.agrees]
    same = "they show no significant difference" if exactly is None else "they agree"
    verdict = f"they differ: {', '.join(differ)}" if differ else same
    if exactly is not None:
        head = ["result", "array", "numbers", "largest difference", "at"]
        rows = [[e.node, e.array, str(e.numbers), f"{e.largest_difference:.2e}", e.where] for e in found]
        limit = f"{verdict}: the limit is {exactly:g} of an array's largest number"
        return "\n".join([*text_table(head, rows, left=(0, 1, 4)), limit])
    head = ["result", "array", "chi^2/dof", "dof", "probability", "largest", "at", "chi^2", "errors"]
    rows = [
        [
            *(each.node, each.array),
            "" if each.chi_squared is None else f"{each.chi_squared:.3f}",
            str(each.degrees_of_freedom),
            f"{each.probability:.3g}",
            _largest(each),
            each.where,
            "correlated" if each.correlated else "uncorrelated",
            "of the difference" if each.paired else "independent",
        ]
        for each in found
    ]
    few = min((each.samples for each in found if each.samples), default=FEW)
    notes = filter(None, [few_degrees_of_freedom(few)])
    return "\n".join([*text_table(head, rows, left=(0, 1, 6, 7, 8)), *notes, verdict])


def _largest(each: ArrayComparison) -> str:
    """The largest deviation, or that a number without an error differs where nothing else does."""
    if not each.agrees and (each.probability or 0) >= LEAST_PROBABILITY:
        return (
            f"{each.largest_difference:.1e}, no error" if isfinite(each.largest_difference) else "not finite"
        )
    return "equal" if each.largest_deviation is None else f"{each.largest_deviation:.2f} sigma"
