"""Account of a finished workflow: where the time went, where every number came from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.declare.coordinates import describe
from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted, energy_text, figure_text
from pipeline.planning.manifest import Manifest
from pipeline.reading.report import Details, Figure, Section, Table
from pipeline.store.provenance import code_text
from pipeline.store.record import Record, waited
from pipeline.store.store import Store
from stages.base.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

ORIGIN: dict[str, Callable[[Record], str]] = {
    "version": lambda record: record.version,
    "backend": lambda record: record.backend,
    "device": lambda record: record.device,
    "certificate": lambda record: (record.certificate or "none")[:12],
    "code": lambda record: code_text(record.code),
}
"""Columns of a report that say by what a chunk was computed."""


@dataclass(frozen=True)
class NodeAccount:
    """A node with the record of each of its chunks, in coordinate order."""

    name: str
    stage: str
    keys: tuple[str, ...]
    records: tuple[Record, ...]

    @property
    def seconds(self) -> float:
        """Seconds of work, summed over the chunks."""
        return sum(record.seconds for record in self.records)

    @property
    def joules(self) -> float | None:
        """Energy that devices drew for the chunks; None unless every record has it."""
        drawn = [record.joules for record in self.records if record.joules is not None]
        return sum(drawn) if len(drawn) == len(self.records) else None

    def statistics(self, name: str) -> list[Any]:
        """A statistic that the stage recorded, chunk by chunk; chunks without it are left out."""
        values = (record.statistics.get(name) for record in self.records)
        return [value for value in values if value is not None]


_read: ContextVar[dict[tuple[Store, str], list[NodeAccount]]] = ContextVar("read")


@contextmanager
def read_once() -> Iterator[None]:
    """Within it the accounts of a workflow are read once, though all sections of a report ask for them."""
    before = _read.set({})
    try:
        yield
    finally:
        _read.reset(before)


def accounts(store: Store, workflow: str) -> list[NodeAccount]:
    """The nodes of the workflow as last run into the store, in order of work.

    Those that are transient, and those of which chunks are missing, are left out.

    Raises:
        InputError: it was never run into this store, or a record cannot be read.
    """
    known = _read.get({})
    if (store, workflow) not in known:
        nodes = []
        for name, node in _manifest(store, workflow).stored.items():
            keys = tuple(node.chunks.in_order())
            if store.keys(node.stage).issuperset(keys):
                records = tuple(Record.of(store.record(node.stage, key)) for key in keys)
                nodes.append(NodeAccount(name, node.stage, keys, records))
        known[store, workflow] = sorted(nodes, key=lambda node: min(each.finished for each in node.records))
    return known[store, workflow]


def summary(nodes: Sequence[NodeAccount]) -> str:
    """One line under the title: how many chunks, how much work, when finished, by which code."""
    records = [record for node in nodes for record in node.records]
    work = duration_text(sum(node.seconds for node in nodes))
    finished = max(record.finished for record in records)[:16].replace("T", " ")
    codes = ", ".join(_distinct(code_text(record.code) for record in records))
    return f"{counted(len(records), 'chunk')}, {work} of work, finished {finished} UTC, quarkline {codes}"


def account(store: Store, workflow: str, nodes: Sequence[NodeAccount]) -> list[Section]:
    """The closing sections of a report: time, checks, provenance."""
    provenance = provenance_section(nodes, _manifest(store, workflow), store)
    return [time_section(nodes), checks_section(nodes), provenance]


def _manifest(store: Store, workflow: str) -> Manifest:
    manifest = Manifest.read(store, workflow)
    if manifest is None:
        raise InputError(f"workflow {workflow!r} was never run into store {store.path}")
    return manifest


def time_section(nodes: Sequence[NodeAccount]) -> Section:
    """Seconds per node, as a plot and a table; joules of those whose devices have counters."""
    total = sum(node.seconds for node in nodes) or 1.0
    rows = [
        [
            node.name,
            len(node.records),
            f"{node.seconds:.2f}",
            f"{node.seconds / len(node.records):.3f}",
            f"{100 * node.seconds / total:.1f} %",
        ]
        for node in nodes
    ]
    columns = ["node", "chunks", "seconds", "per chunk", "share"]
    kernels = sum(waited(part) for n in nodes for r in n.records for part in (r.worker, *r.parts))
    text = "Seconds of work summed over all chunks; chunks run side by side, so a run takes less."
    if kernels >= 0.01 * total:
        text += f" Of these, {kernels:.0f} s went into compiling and reading kernels, once per worker."
    if any(node.joules is not None for node in nodes):
        columns.append("joules")
        rows = [[*row, node.joules and f"{node.joules:.0f}"] for row, node in zip(rows, nodes, strict=True)]
        known = [node.joules for node in nodes if node.joules is not None]
        text += (
            f" Joules are what the devices drew meanwhile, by their own counters: {energy_text(sum(known))}"
        )
        unknown = sum(len(node.records) for node in nodes if node.joules is None)
        text += f", without {counted(unknown, 'chunk')} that nothing measured." if unknown else " in all."
    table = Table(columns, rows)
    return Section(
        "Where the time went", text, [Figure(_time_plot(nodes), "Seconds of work per node."), table]
    )


def _time_plot(nodes: Sequence[NodeAccount]) -> Plot:
    from matplotlib.figure import Figure as Plot

    plot = Plot(figsize=(8, 0.35 * len(nodes) + 0.8))
    axes = plot.subplots()
    names, seconds = [figure_text(node.name) for node in nodes], [node.seconds for node in nodes]
    axes.barh(names, seconds, color="#1f5fa8", height=0.6)
    axes.invert_yaxis()
    axes.set_xlabel("seconds of work")
    axes.spines[["top", "right"]].set_visible(False)
    return plot


def checks_section(nodes: Sequence[NodeAccount]) -> Section:
    """Checks of each node's chunks; records of earlier versions have none."""
    rows = []
    for node in nodes:
        checks = [record.checks for record in node.records if record.checks]
        seconds = sum(check["seconds"] for check in checks)
        rows.append(
            [
                node.name,
                len(node.records),
                sum(check["repeated"] for check in checks),
                f"{sum(check['bytes'] for check in checks) / 1e6:.1f}",
                f"{seconds:.3f}",
                f"{100 * seconds / (node.seconds or 1.0):.2f} %",
            ]
        )
    repeated = sum(row[2] for row in rows)
    second = "No chunk was drawn to be computed a second time."
    if repeated:
        second = (
            f"A part of {repeated} of the chunks was computed a second time by other code; their records say "
            "what."
        )
    text = (
        f"Checksums of what workers held were compared before each commit. {second} A chunk that disagreed "
        "is not among the results: it was computed again."
    )
    columns = ["node", "chunks", "repeated in part", "checksums, MB", "seconds", "share of its time"]
    return Section("Checks against silent errors", text, [Table(columns, rows)])


def provenance_section(nodes: Sequence[NodeAccount], manifest: Manifest, store: Store) -> Section:
    """Stage, version, code and parameters of each node; keys of every chunk; digests of input files.

    Parameters and files are those of the manifest, which has the transient nodes, too.
    """
    origin = [
        [node.name, node.stage, *(", ".join(_distinct(map(fact, node.records))) for fact in ORIGIN.values())]
        for node in nodes
    ]
    parameters = "\n".join(
        f"{name}: {json.dumps(node.content['parameters'])}" for name, node in manifest.nodes.items()
    )
    keys = "\n".join(line for node in nodes for line in _key_lines(node))
    files = "\n".join(_file_lines(manifest))
    why = _distinct(r.uncertified for n in nodes for r in n.records if r.uncertified)
    folded = [
        Details("Parameters of each node", parameters),
        Details(
            "Key of each chunk: digest of stage, version, parameters, coordinates and inputs' keys", keys
        ),
        *([Details("SHA-256 of each input file", files)] if files else []),
        *([Details("Why results have no certificate", "\n".join(why))] if why else []),
    ]
    text = f"Each number is in {store.path}, below the stage's name and the chunk's key, with its own record."
    return Section("Provenance", text, [Table(["node", "stage", *ORIGIN], origin), *folded])


def _key_lines(node: NodeAccount) -> Iterator[str]:
    for key, record in zip(node.keys, node.records, strict=True):
        yield f"{node.name} {describe(record.coordinates)}  {node.stage}/{key}".replace("  ", " ")


def _file_lines(manifest: Manifest) -> Iterator[str]:
    for name, node in manifest.nodes.items():
        for place in node.chunks if node.content["files"] else ():
            for digest in node.files(place).values():
                yield f"{digest}  {name} {describe(dict(place))}"


def _distinct(values: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values))
