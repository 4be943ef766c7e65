"""The store that a command works on: named itself, or by a workflow file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

from pipeline import InputError, Plan, Store, plan
from pipeline.reading.gc import BACKENDS
from pipeline.store.object_store import store_at, url_in
from pipeline.store.plain_files import content_of, json_object
from pipeline.store.shelves import listed
from workflows.catalogue import load_project
from workflows.parameter_file import names_workflow
from workflows.shared.definition import Project

MADE_OF = ".made_of.json"
"""File in a report's folder: its workflow file with changes, and digests of its content and its files."""


def open_store(target: Path, changes: Sequence[str] | None = None) -> Store:
    """The store in a folder, at a URL, or that of a workflow file, with changes."""
    is_file = not url_in(target) and (target.is_file() or target.suffix in (".yaml", ".yml"))
    if changes and not is_file:
        raise InputError(f"--set {changes[0]}: {target} is a store, and keys are set in a workflow file")
    if url_in(target):
        return store_at(target)
    if is_file and target.suffix not in (".yaml", ".yml") and not names_workflow(target):
        raise InputError(
            f"{target} is a file: give a store's folder or a workflow file, and gauge configurations to "
            "`quarkline check`"
        )
    return Store(load_project(target, changes or ()).store if is_file else target)


def project_and_store(
    file: Path, chosen: Path | None, changes: Iterable[str] | None = None
) -> tuple[Project, Store]:
    """The workflow in a file, with changes, and the store of its results, or the one that `chosen` names.

    Raises:
        InputError: a mistake in the file; or its store is relative and has nothing of what the file asks for,
            while the one seen from a folder above this one, or above the file, has.
    """
    project = load_project(file, changes or ())
    store = Store(chosen or project.store)
    if chosen or project.store.is_absolute():
        return project, store
    for folder in dict.fromkeys([*Path.cwd().parents, *file.resolve().parents]):
        other = folder / project.store
        if other.resolve() != store.path.resolve() and _has_results(project, other):
            if _has_results(project, store.path):
                break
            raise InputError(
                f"the store {str(project.store)!r} would be {store.path}, but results of this file are in "
                f"{other}: run it in {folder}, or say which one by --store FOLDER"
            )
    return project, store


def remarks(planned: Plan, project: Project, file: Path, chosen: Path | None) -> list[str]:
    """Warnings about the places of results, of which a plan makes none.

    The store or the report's folder cannot be written; or the store is new, while one beside it has results
    that are planned. Folders above are refused by `project_and_store`; one beside this one, or the file's,
    may well have its own store.
    """
    store, report = (chosen or project.store).absolute(), project.report.absolute()
    inside = [Path(entry.path) for entry in listed(store) if entry.is_dir()] if planned.missing else []
    places = (
        ("store", store, [store, *inside] if planned.missing else [], "by --store FOLDER or the key `store`"),
        ("report's folder", report, [report], "by the key `report`"),
    )
    found = [
        f"the {what} {place} cannot be written ({why}): choose another one {how}"
        for what, place, folders, how in places
        if (why := next(filter(None, map(_unwritable, folders)), ""))
    ]
    if replaced := replaced_report(project):
        found.append(replaced)
    if chosen or project.store.is_absolute() or len(planned.missing) < len(planned.chunks):
        return found
    for folder in _beside(Path.cwd(), file.resolve().parent):
        if _holds(other := folder / project.store, planned):
            found.append(
                f"the store {str(project.store)!r} is {store} and holds nothing of this file, results of "
                f"which are in {other}: to go on from them, run it in {folder}, or say --store {other}"
            )
            break
    return found


def replaced_report(project: Project) -> str:
    """A sentence on the report in a project's folder, if it is of another file or `--set`; otherwise ''."""
    folder = project.report.absolute()
    try:
        other = (json_object(content_of(folder / MADE_OF)) or {}).get("of")
    except (OSError, ValueError):
        return ""
    if not other or not project.label or other == project.label:
        return ""
    return (
        f"{folder} has the report of `{other}`, which that of `{project.label}` replaces: to keep both, add "
        "--set report=FOLDER"
    )


def _unwritable(folder: Path) -> str:
    """Why a folder, which may not exist yet, cannot be made or written; '' where nothing is against it."""
    for place in (folder, *folder.parents):
        try:
            mode = os.stat(place).st_mode
            system = os.statvfs(place)
        except FileNotFoundError:
            if os.path.islink(place):
                return f"{place} is a link to {os.readlink(place)}, which is not there"
            continue
        except OSError as error:
            return f"{place}: {error.strerror}"
        if not S_ISDIR(mode):
            return f"{place} is a file"
        if system.f_flag & os.ST_RDONLY:
            return f"{place} is on a file system that is read-only"
        made_by_kernel = place.resolve().parts[1:2] in (("proc",), ("sys",))
        return (
            f"{place}: Permission denied" if made_by_kernel or not os.access(place, os.W_OK | os.X_OK) else ""
        )
    return ""


def _beside(*folders: Path) -> Iterator[Path]:
    """Folders that lie beside these."""
    for parent in dict.fromkeys(folder.parent for folder in folders):
        with suppress(OSError):
            yield from sorted(each for each in parent.iterdir() if each not in folders)


def _holds(folder: Path, planned: Plan) -> bool:
    """True if a folder is a store with some node's first chunk."""
    firsts = {chunk.node.name: chunk for chunk in reversed(planned.chunks)}.values()
    try:
        if not os.path.isdir(folder):
            return False
        store = Store(folder)
        return any(store.has(chunk.node.stage.name, chunk.key) for chunk in firsts)
    except (InputError, OSError):  # it cannot be read, or is none
        return False


def _has_results(project: Project, folder: Path) -> bool:
    """True if a folder is a store with chunks that a project asks for."""
    try:
        store = Store(folder)
        if not store.exists():
            return False
        plans = (plan(project.workflow, store, backend=backend) for backend in BACKENDS)
        return any(len(each.missing) < len(each.chunks) for each in plans)
    except InputError:  # it cannot be read, or is none
        return False
