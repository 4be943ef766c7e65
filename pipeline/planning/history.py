"""All plans that a store has run, `<store>/.workflows/.<workflow>-<digest>.json`: whose chunks are whose.

One file for each text of each parameter file; later plans of the same text (rounds of a target, another
backend, more of an input) add their keys. Nothing is decided by it but what `quarkline gc` asks about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

from pipeline.planning.manifest import Manifest
from pipeline.planning.manifest_files import (
    FORMER,
    damaged_manifests,
    drop_former,
    former_manifests,
    manifests,
    write_manifest,
)
from pipeline.planning.plan import Plan
from pipeline.store.durable import write_atomically
from pipeline.store.plain_files import FILE_BYTES, content_of, json_object, text_of
from pipeline.store.store import Store
from pipeline.store.typed import expect

DIGITS = 16
"""Of each key: enough to tell chunks of one store apart."""


class PastPlanFacts(TypedDict):
    """A past plan as it is written."""

    workflow: str
    path: str
    day: str
    keys: str


@dataclass(frozen=True)
class PastPlan:
    """The chunks that runs of one text of a parameter file wanted, by the first digits of their keys."""

    workflow: str
    path: str
    """The parameter file's, with what `--set` changed in it; '' for a workflow that a script made."""
    day: str
    """Date of the last run that added chunks."""
    keys: frozenset[str]

    def __str__(self) -> str:
        return f"{self.path or self.workflow} as run on {self.day}"

    def wants(self, key: str) -> bool:
        """True if a chunk of this key was planned."""
        return key[:DIGITS] in self.keys


def keep_plan(store: Store, plan: Plan) -> None:
    """Keep a plan that is run: its manifest, which names results, and whose its chunks are.

    Raises:
        StoreError: they cannot be written.
    """
    write_manifest(store, plan.workflow, plan.backend, plan.everything, plan.about, plan.source)
    path, text = (plan.source.label, plan.source.text) if plan.source else ("", "")
    digest = sha256(f"{path}\0{text}".encode()).hexdigest()[:16]
    keys = _short(chunk.key for chunk in plan.everything)
    with store.writing("the plan of its workflow"):
        _add(
            store,
            f".{plan.workflow}-{digest}.json",
            PastPlan(plan.workflow, path, date.today().isoformat(), keys),
        )


def past_plans(store: Store) -> Iterator[PastPlan]:
    """All that a store remembers, and the last plan of each workflow, which older versions kept only.

    Raises OSError.
    """
    known: set[str] = set()
    for path in _files(store):
        if plan := _read(path):
            known |= plan.keys
            yield plan
    for manifest in (*manifests(store), *former_manifests(store)):
        if not (keys := _keys_of(manifest)) <= known:
            yield PastPlan(manifest.workflow, manifest.file, "an unknown day", keys - known)


def bring_past_plans(source: Store, target: Store) -> None:
    """Remember what another store remembers, too. Raises OSError."""
    for path in _files(source):
        if plan := _read(path):
            _add(target, path.name, plan)
    for path in source.inside(".workflows").glob(FORMER.format("*", "*")):
        text, place = text_of(path, FILE_BYTES), target.inside(".workflows", path.name)
        if text and not place.exists():
            write_atomically(place, text)


def damaged_plans(store: Store) -> list[Path]:
    """Files of plans, past and last, that cannot be read: which chunks they want is not known."""
    past = [path for path in _files(store) if not _read(path) and not Manifest.in_file(path)]
    return [*past, *damaged_manifests(store, manifests(store))]


def forget(store: Store) -> None:
    """Drop the plans of which no chunk is stored any more. Raises OSError."""
    stored = _short(key for stage in store.stages() for key in store.each_key(stage))
    for path in _files(store):
        if (plan := _read(path)) and not plan.keys & stored:
            path.unlink()
    for former in former_manifests(store):
        if not _keys_of(former) & stored:
            drop_former(store, former)


def _keys_of(manifest: Manifest) -> frozenset[str]:
    return _short(key for node in manifest.nodes.values() for key in node.chunks.in_order())


def _short(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(key[:DIGITS] for key in keys)


def _files(store: Store) -> list[Path]:
    return sorted(store.inside(".workflows").glob(".*-*.json"))


def _add(store: Store, name: str, plan: PastPlan) -> None:
    place = store.inside(".workflows", name)
    before = _read(place)
    if before and plan.keys <= before.keys:
        return
    keys = plan.keys | before.keys if before else plan.keys
    write_atomically(place, json.dumps({**asdict(plan), "keys": "".join(sorted(keys))}))


def _read(path: Path) -> PastPlan | None:
    """The plan in a file; None where there is none, or it is damaged. Raises OSError of any other fault."""
    try:
        content = expect(json_object(content_of(path)), PastPlanFacts, "a past plan")
        joined = content.pop("keys")
        keys = frozenset(joined[k : k + DIGITS] for k in range(0, len(joined), DIGITS))
        return PastPlan(**content, keys=keys)
    except (FileNotFoundError, ValueError, TypeError):
        return None
