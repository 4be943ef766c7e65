"""The last plan of each workflow, `<store>/.workflows/<name>.json`, and those of its other files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from pipeline.planning.chunk import Chunk
from pipeline.planning.manifest import PART, Manifest, describe_chunks, describe_node
from pipeline.planning.workflow import Source, file_and_changes
from pipeline.store.durable import write_atomically
from pipeline.store.plain_files import content_of
from pipeline.store.record import Facts, canonical_json
from pipeline.store.store import Store
from stages.base.errors import InputError, suggestion

FORMER = ".former-{}-{}.json"
"""File of a manifest that another file's replaced, by the workflow and a digest of its own file."""


def manifests(store: Store) -> list[Manifest]:
    """The manifests of all workflows that were run into a store; parts of them are left out."""
    names = sorted(path.stem for path in (store.path / ".workflows").glob("[!.]*.json"))
    names = [name for name in names if not name.endswith(PART)]
    return [manifest for name in names if (manifest := Manifest.read(store, name))]


def damaged_manifests(store: Store, read: Sequence[Manifest]) -> list[Path]:
    """The files of `manifests` that are not among those that were read."""
    known = {manifest.workflow for manifest in read}
    paths = sorted((store.path / ".workflows").glob("[!.]*.json"))
    return [path for path in paths if path.stem not in known and not path.stem.endswith(PART)]


def former_manifests(store: Store) -> list[Manifest]:
    """The manifests of other files that were run as a workflow before its last one, parts left out."""
    read = map(Manifest.in_file, sorted((store.path / ".workflows").glob(FORMER.format("*", "*"))))
    return [manifest for manifest in read if manifest and not manifest.workflow.endswith(PART)]


def of_file(store: Store, file: str) -> list[Manifest]:
    """The manifests of a workflow file, `my.yaml`, or of one with changes, `my.yaml --set masses.light=0.1`.

    Its path as it was run, or the end of that where the store came from elsewhere.

    Raises:
        InputError: the store has none, or of several files of that name.
    """
    name, changes = file_and_changes(file)
    known = [each for each in (*manifests(store), *former_manifests(store)) if each.file]
    alike = [each for each in known if set(each.changes) == set(changes)]
    found = [each for each in alike if each.path == os.path.abspath(name)]
    found = found or [each for each in alike if each.path.endswith(f"/{name.removeprefix('./')}")]
    if len({each.file for each in found}) != 1:
        names = "\n  ".join(["", *dict.fromkeys(each.file for each in found or known)])
        if found:
            raise InputError(
                f"store {store.path} has results of several files {file}: say which by its path:{names}"
            )
        raise InputError(
            f"store {store.path} has no results of {file}; it has those of:{names or ' no file'}"
        )
    return found


def keep_former(store: Store, manifest: Manifest, text: str) -> None:
    """Keep the text of a manifest that another file's replaces. Raises OSError."""
    write_atomically(_former(store, manifest.workflow, manifest.file), text)


def drop_former(store: Store, manifest: Manifest) -> None:
    """Forget one of `former_manifests`. Raises OSError."""
    _former(store, manifest.workflow, manifest.file).unlink(missing_ok=True)


def last_plan(store: Store, workflow: str, file: str, of_others: bool = True) -> Manifest | None:
    """The last manifest of a workflow that this file was run as, which may be of a file before the last.

    file: with its changes, as `Source.label`; '' for that of a script. of_others: that of the last file that
    was run as this workflow serves, where this one was not. Raises InputError as `Manifest.read` does.
    """
    last = Manifest.read(store, workflow)
    if not last or last.file == file:
        return last
    return Manifest.in_file(_former(store, workflow, file)) or (last if of_others else None)


def part_of(store: Store, whole: Manifest) -> Manifest | None:
    """The manifest of averages of what was complete when a run of the same file failed."""
    return last_plan(store, f"{whole.workflow}{PART}", whole.file, of_others=False)


def _former(store: Store, workflow: str, file: str) -> Path:
    digest = sha256(file.encode(errors="surrogateescape")).hexdigest()[:16]
    return store.inside(".workflows", FORMER.format(workflow, digest))


def find_node(store: Store, name: str, workflow: str | None = None) -> tuple[Manifest, str]:
    """The node of that name, or the only one of that stage: its manifest, and its name there.

    workflow: its name, or a file that was run as it, see `of_file`.

    Raises:
        InputError: there is none; or there are several, and `workflow` or the node's name must say which.
    """
    known = manifests(store)
    if workflow is not None:
        last = Manifest.read(store, workflow) if "/" not in workflow else None
        is_file = not last and (" --set " in workflow or workflow.endswith((".yaml", ".yml")))
        known = of_file(store, workflow) if is_file else [last] if last else []
    stored = [(each, label, node) for each in known for label, node in each.stored.items()]
    holding = [item for item in stored if item[1] == name]
    holding = holding or [item for item in stored if item[2].stage == name]
    if not holding:
        names = {label for _, label, _ in stored}
        raise InputError(f"store {store.path} has no result named {name!r}{suggestion(name, names)}")
    if len(holding) > 1:
        places = ", ".join(sorted(f"{label} of workflow {owner.workflow}" for owner, label, _ in holding))
        raise InputError(f"{name!r} may be {places}: say which, by node name and workflow=...")
    return holding[0][:2]


def write_manifest(
    store: Store,
    workflow: str,
    backend: str,
    chunks: Iterable[Chunk],
    about: Facts,
    source: Source | None = None,
) -> None:
    """Keep this plan's nodes and keys, and its parameter file, replacing the workflow's last ones."""
    nodes = {
        node.name: {**describe_node(node, backend), **describe_chunks(node, list(group))}
        for node, group in groupby(chunks, key=lambda chunk: chunk.node)
    }
    content = {"workflow": workflow, "nodes": nodes, **({"about": about} if about else {})}
    folder = store.inside(".workflows")
    if source:
        changes = {"set": list(source.changes)} if source.changes else {}
        content["source"] = {"path": source.path, "folder": source.folder, **changes}
        if not workflow.endswith(PART):
            _keep(store, folder / f"{workflow}.yaml", source.text)
    _put_aside(store, workflow, source.label if source else "")
    _keep(store, folder / f"{workflow}.json", canonical_json(content).decode())


def _put_aside(store: Store, workflow: str, file: str) -> None:
    """Keep the manifest of the file that was run as this workflow before, if it was another one."""
    before = Manifest.read(store, workflow)
    if before and before.file and before.file != file:
        with store.writing("the plan of its workflow"):
            keep_former(store, before, (store.inside(".workflows") / f"{workflow}.json").read_text())
    if file and (former := _former(store, workflow, file)).exists():
        with store.writing("the plan of its workflow"):
            former.unlink(missing_ok=True)


def _holds(path: Path, text: str) -> bool:
    try:
        return content_of(path) == text.encode()
    except (OSError, ValueError):
        return False


def _keep(store: Store, path: Path, text: str) -> None:
    if not _holds(path, text):
        with store.writing("the plan of its workflow"):
            write_atomically(path, text)
