"""The workflows that a file may name: those of this package, and those that other packages register."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pipeline import Store
from stages.base.errors import InputError, nearest, suggestion
from workflows.names import GROUP, OWN, registered, workflow_names
from workflows.parameter_file import read_parameter_file
from workflows.shared.definition import Definition, Project

if TYPE_CHECKING:
    from pipeline.reading.dashboard.panel import Addition


def load_project(path: Path, changes: Iterable[str] = ()) -> Project:
    """Read, check and build the workflow in a YAML file; changes: `KEY=VALUE`, of its values.

    Raises:
        InputError: a mistake in the file or in what it refers to, or a workflow that cannot be loaded.
    """
    file = read_parameter_file(path, changes)
    name = file.values.get("workflow")
    known = workflow_names()
    if not isinstance(name, str) or name not in known:
        if similar := nearest("workflow", () if "workflow" in file.values else file.values):
            place = file.place((similar,))
            raise file.error(f"unknown key `{similar}` at the top level ({place}): did you mean `workflow`?")
        fault = f"{file.name('workflow')} is {name!r}" if name else "missing key `workflow`"
        raise file.error(f"{fault}{suggestion(name or '', known, mark='`')}")
    return Project.of(definition_of(name), file)


def definition_of(name: str) -> type[Definition[Any]]:
    """The workflow of a name.

    Raises:
        InputError: no such workflow, several packages have one of that name, or its package gives none.
    """
    if name not in (known := workflow_names()):
        raise InputError(f"no workflow is named {name!r}{suggestion(name, known, mark='`')}")
    entries = [entry for entry in registered() if entry.name == name]
    owners = [*(["quarkline"] if name in OWN else []), *map(_package, entries)]
    if len(owners) > 1:
        raise InputError(
            f"workflow {name!r} is registered by {' and by '.join(owners)}: uninstall all but one of these "
            f"packages, or rename the entry point of group {GROUP!r} in one"
        )
    if name in OWN:
        return import_module(OWN[name]).WORKFLOW
    return _loaded(entries[0])


def status_lines(store: Store) -> list[str]:
    """Lines on the results in a store from each installed workflow that has some."""
    return [line for definition in _definitions(store) for line in definition.status(store)]


def dashboard_additions(store: Store) -> list[Addition]:
    """Additions to a store's dashboard by the workflows with results there; the usual one where none has."""
    modules = {definition.dashboard: None for definition in _definitions(store)} or [Definition.dashboard]
    return [import_module(module).DASHBOARD for module in modules]


def _definitions(store: Store) -> list[type[Definition[Any]]]:
    """The installed workflows that a store has a plan of."""
    from pipeline.planning.manifest_files import manifests

    known, names = workflow_names(), dict.fromkeys(manifest.workflow for manifest in manifests(store))
    return [definition_of(name) for name in names if name in known]


def _loaded(entry: EntryPoint) -> type[Definition[Any]]:
    where = f"workflow {entry.name!r} of {_package(entry)} ({entry.value})"
    try:
        value = entry.load()
    except Exception as error:  # another package's code, which may raise anything
        raise InputError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if isinstance(value, ModuleType):
        value = getattr(value, "WORKFLOW", None)
    if not (isinstance(value, type) and issubclass(value, Definition)):
        raise InputError(
            f"{where} is no workflow: the entry point must name a class derived from `workflows.Definition`, "
            "or a module whose WORKFLOW is one"
        )
    if value.name != entry.name:
        raise InputError(f"{where} calls itself {value.name!r}: the two names must be the same")
    return value


def _package(entry: EntryPoint) -> str:
    return f"package {entry.dist.name}" if entry.dist else "an unnamed package"
