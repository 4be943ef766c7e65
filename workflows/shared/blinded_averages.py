"""Averages in a store that must not stand beside each other: blinded ones, and others of the same data."""

from __future__ import annotations

from itertools import chain

from pipeline import Plan, Record, Store
from stages.base.errors import InputError

BLINDED = "hvp_average"
"""Stage whose results may carry a blinding's factor, which its parameter `blinded` names."""
AVERAGES = (BLINDED, "ensemble_average", "bootstrap_average", "connected_average", "trace_allocation")
"""Stages whose results are linear in averages of vector correlators."""
DERIVED = "hvp_contribution"
"""Stage that makes more of blinded averages, with the same factor; it may outlive them in a store."""


def refuse_mixed(plan: Plan, store: Store) -> None:
    """Raise InputError for averages beside those of the same correlators that have another factor, or none.

    The ratio of the two would be the factor.
    """
    for chunk in plan.everything:
        own = chunk.node.parameters.get("blinded")
        if chunk.node.stage.name not in AVERAGES or not (own or store.keys(BLINDED)):
            continue
        for key in store.keys(DERIVED) if own else ():
            record = Record.of(store.record(DERIVED, key))
            average = next(chain.from_iterable(record.inputs))
            if record.parameters.get("blinded") != own and average not in store.keys(BLINDED):
                raise InputError(
                    f"{store.path} has an a_mu that is not of this blinding, and whose average was removed "
                    f"({DERIVED} {key[:12]}): run into another store, or remove {store.path / DERIVED} first"
                )
        data = {source.key for source in chain.from_iterable(chunk.inputs)}
        for stage in AVERAGES if own else (BLINDED,):
            for key in store.keys(stage):
                record = Record.of(store.record(stage, key))
                other = record.parameters.get("blinded")
                if other != own and data.intersection(chain.from_iterable(record.inputs)):
                    kind = "open" if not other else "of another blinding" if own else "blinded"
                    remedy = "" if own else "`quarkline open` shows them; "
                    raise InputError(
                        f"{store.path} has averages of the same correlators that are {kind} ({stage} "
                        f"{key[:12]}), beside which these would give the factor away: {remedy}run into "
                        f"another store, or remove {store.path}/{stage} first"
                    )
