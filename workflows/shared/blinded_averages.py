"""Averages in a store that must not stand beside each other: blinded ones, and others of the same data."""

from __future__ import annotations

from itertools import chain, product

from pipeline import Plan, Record, Store
from pipeline.transfer.offer import Records, Separation
from stages.base.errors import InputError

BLINDED = "hvp_average"
"""Stage whose results may carry a blinding's factor, which its parameter `blinded` names."""
AVERAGES = (BLINDED, "ensemble_average", "bootstrap_average", "connected_average", "trace_allocation")
"""Stages whose results are linear in averages of vector correlators."""
DERIVED = "hvp_contribution"
"""Stage that makes more of blinded averages, with the same factor; it may outlive them in a store."""
STAGES = (*AVERAGES, DERIVED)


def refuse_mixed(plan: Plan, store: Store) -> None:
    """Raise InputError for averages of a plan beside those in its store that have another factor, or none."""
    own: Records = []
    for chunk in (chunk for chunk in plan.everything if chunk.node.stage.name in STAGES):
        labels = [
            str(label) for source in chain(*chunk.inputs) for label in source.coordinates.get("config", ())
        ]
        keys, parameters = [[source.key for source in each] for each in chunk.inputs], chunk.node.parameters
        facts = {"labels": labels}
        record = Record(
            stage=chunk.node.stage.name, key=chunk.key, inputs=keys, parameters=parameters, statistics=facts
        )
        own.append((str(store.path), record))
    stored = {stage: store.keys(stage) for stage in STAGES} if own else {}
    if stored.get(BLINDED) or stored.get(DERIVED) or any(record.stage == BLINDED for _, record in own):
        records = [Record.of(store.record(stage, key)) for stage, keys in stored.items() for key in keys]
        _refuse(own, [(str(store.path), record) for record in records], "run")


def refuse_brought(coming: Records, there: Records) -> None:
    """Raise InputError for chunks that come into a store where they, or others that come, mix averages."""
    _refuse(coming, [*there, *coming], "bring them")


def _refuse(own: Records, others: Records, do: str) -> None:
    """The ratio of averages of the same correlators that have different factors would be the factor."""
    known = {record.key for _, record in (*own, *others)}
    for (source, one), (place, other) in product(own, others):
        factor, of_other = one.parameters.get("blinded"), other.parameters.get("blinded")
        if factor == of_other:
            continue
        data = [{*chain.from_iterable(record.inputs)} for record in (one, other)]
        for where, record, inputs in zip((source, place), (one, other), data, strict=True):
            if record.stage == DERIVED and not inputs & known:
                raise InputError(
                    f"{where} has an a_mu that is not of this blinding, and whose average was removed "
                    f"({DERIVED} {record.key[:12]}): {do} into another store, or remove {where}/{DERIVED} "
                    "first"
                )
        if DERIVED not in (one.stage, other.stage) and (data[0] & data[1] or _alike(one, other)):
            kind = "open" if not of_other else "of another blinding" if factor else "blinded"
            remedy = "" if factor else "`quarkline open` shows them; "
            raise InputError(
                f"{place} has averages of the same correlators that are {kind} ({other.stage} "
                f"{other.key[:12]}), beside which these would give the factor away: {remedy}"
                f"{do} into another store, or remove {place}/{other.stage} first"
            )


def _alike(*records: Record) -> bool:
    """True for averages of the same parts, with other noise, say, of configurations that may be the same."""
    parts = []
    labels = [record.statistics.get("labels") for record in records]
    for parameters in (record.parameters for record in records):
        quarks = [f"{q} {c}" for q in parameters.get("quarks", ()) for c in parameters.get("currents", ())]
        parts.append({*parameters.get("parts", quarks or ["disconnected"])})
    return bool(parts[0] & parts[1]) and (
        labels[0] is None or labels[1] is None or not {*labels[0]}.isdisjoint(labels[1])
    )


BLINDED_APART = Separation((BLINDED, DERIVED), STAGES, refuse_brought)
