"""The cluster that a command uses: of the workflow file, of a file of its own, or named; with changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.running.clusters.choose import named
from pipeline.running.clusters.section import GONE, ClusterSection
from stages.base.errors import InputError, nearest
from workflows.parameter_file import (
    Location,
    ParameterFile,
    changed,
    names_workflow,
    read_parameter_file,
    validated,
)

SECTION = "cluster"
SUFFIXES = (".yaml", ".yml")
"""Of a file about a cluster; another file is one that a Dask scheduler wrote."""


def chosen_site(
    workflow: Path,
    cluster: str | None = None,
    changes: Sequence[str] | None = None,
    gpus_per_worker: int | None = None,
) -> ClusterSection:
    """The cluster that a command uses.

    Args:
        workflow: a workflow file, whose section is taken unless another cluster is named.
        cluster: a kind, an address, a scheduler file, or a YAML file with the keys of a section.
        changes: `KEY=VALUE`, those of the cluster among them.
        gpus_per_worker: instead of what the section says, the last word.

    Raises:
        InputError: no such cluster, or every problem of its section, with its place.
    """
    source = _section_of(workflow) if cluster is None else _named(cluster)
    source = changed(source, [change for change in changes or () if of_cluster(change)])
    if gpus_per_worker:
        option = f"--gpus-per-worker {gpus_per_worker}"
        section = source.values[SECTION]
        if isinstance(section, dict) and section.get("kind") == "local":
            raise InputError(f"{option}: workers of kind local have no GPU: take --cluster cuda")
        source = source.with_value((SECTION, "gpus_per_worker"), gpus_per_worker, option)
    section = validated(source, dict[str, ClusterSection])[SECTION]
    source.refuse(((SECTION, *location), text) for location, text in section.problems())
    return section


def of_cluster(change: str) -> bool:
    """True for `cluster.KEY=VALUE`."""
    return change.partition("=")[0].split(".")[0].strip() == SECTION


def of_results(changes: Sequence[str] | None) -> list[str]:
    """The other changes, which the file's own reader takes."""
    return [change for change in changes or () if not of_cluster(change)]


def _section_of(workflow: Path) -> ParameterFile:
    """The part of a workflow file about the cluster; this machine's processors, if there is none."""
    file = read_parameter_file(workflow)
    if file.values.get(SECTION) is None:
        return ParameterFile(workflow, {SECTION: {"kind": "local"}}, {(): 1})
    lines = {location: line for location, line in file.lines.items() if location[:1] in ((), (SECTION,))}
    return ParameterFile(workflow, {SECTION: file.values[SECTION]}, lines)


def _named(cluster: str) -> ParameterFile:
    path = Path(cluster)
    if cluster.endswith(SUFFIXES) and "://" not in cluster:
        if not path.exists():
            beside = {each.stem: each for each in path.parent.glob("*.y*ml") if not names_workflow(each)}
            close = beside.get(nearest(path.stem, beside) or "")
            hint = f"did you mean {close}?" if close else "quarkline init slurm_gpu writes one"
            raise InputError(f"there is no cluster file {cluster!r}: {hint}")
        return _cluster_file(path)
    values = {"kind": cluster} if cluster in GONE else named(cluster, "; one of your own: a YAML file")
    options: dict[Location, str] = dict.fromkeys(((), (SECTION,)), f"--cluster {cluster}")
    return ParameterFile(Path("--cluster"), {SECTION: values}, {(): 1}, options)


def _cluster_file(path: Path) -> ParameterFile:
    file = read_parameter_file(path)
    if "workflow" in file.values:
        raise InputError(
            f"{path} is a workflow file: its own section `cluster` is used where --cluster is left out"
        )
    if list(file.values) == [SECTION]:
        return file
    lines = {(SECTION, *location): line for location, line in file.lines.items()}
    return ParameterFile(path, {SECTION: file.values}, {(): 1, **lines})
