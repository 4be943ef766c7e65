"""Results as people get them: a report of all, or of the configurations that are complete."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep

from pipeline import InputError, Plan, Store, plan, run
from pipeline.declare.text import counted
from pipeline.reading import report
from pipeline.reading.account import account, accounts, read_once, summary
from pipeline.reading.forecast.kept import reconciled
from pipeline.reading.gc import BACKENDS
from pipeline.reading.report import Section, Table, write_report
from pipeline.reading.result import IncompleteError
from pipeline.reading.verification import set_aside
from pipeline.running.clusters.local import Local
from pipeline.store.durable import flocked
from pipeline.store.errors import DamagedChunkError
from pipeline.store.plain_files import json_object, plain
from pipeline.worker.sources import digest_of
from stages.base.atomic import replacing
from workflows.partial import Part, complete_part
from workflows.rounds import Rounds
from workflows.shared.definition import FILE, Project
from workflows.shared.ensemble_doubts import TWO_GROUPS
from workflows.stores import MADE_OF, replaced_report
from workflows.terminal import FailedError, say

PATIENCE = 10.0
"""Seconds, more than a report takes to be written."""


@contextmanager
def sound_chunks(store: Store, file: str) -> Iterator[None]:
    """Move chunks aside that are found damaged while the block reads them; file: as `quarkline run` takes it.

    Raises:
        InputError: there are some; names them and the command that computes them again.
    """
    try:
        yield
    except DamagedChunkError as error:
        first, *others = set_aside(store, error)
        more = f", and {len(others)} more of that stage" if others else ""
        raise InputError(f"{first}{more}: `quarkline run {file}` computes what is damaged again") from error


def results_of(project: Project, store: Store, file: str) -> Part:
    """Results of a project, of its last round where it has several: all, or of complete configurations.

    The store's results get the names that this file, as it is now, gives them.

    Raises:
        FailedError: there are none.
    """
    best = min((Rounds(project, store, backend) for backend in BACKENDS), key=_left)
    part = complete_part(best.project, best.plan, store)
    if part is None:
        raise FailedError(_missing(best.plan, store, file))
    run(part.plan, store, cluster=Local(workers=1, backend=best.plan.backend))
    if best.plan.missing:  # some of it has been computed here
        part = replace(part, whole=plan(best.project.workflow, store, backend=best.plan.backend))
    if part.whole.missing:
        until = f"; until then: {mark}" if (mark := part.mark(store)) else ""
        say(f"warning: {_missing(part.whole, store, file)} computes them{until}", err=True)
    return part


def _missing(planned: Plan, store: Store, file: str) -> str:
    return f"{counted(len(planned.missing), 'chunk')} missing in {store.path}: quarkline run {file}"


def _left(rounds: Rounds) -> tuple[bool, int, int]:
    """Order of backends: complete ones, then those in later rounds, then those with less to do."""
    missing = len(rounds.plan.missing)
    return missing > 0, -len(rounds.projects), missing


@read_once()
def publish(part: Part, store: Store, warn: Callable[[str], None]) -> Path:
    """Writes the workflow's own sections and the engine's account; returns the page.

    warn: told of a report of another file that is replaced.
    """
    project = part.project
    name = project.workflow.name
    made_of = ingredients(part, store)
    try:
        texts = project.texts(store)
    except IncompleteError:  # of the average, which could not be made
        texts = {}
    about = {name: value for name, value in project.workflow.about.items() if name not in ("title", FILE)}
    nodes = accounts(store, name)
    told = reconciled(store, name, nodes)
    own = project.sections(store)
    sections = [*_warnings(project, own), *part.sections(), *own, *told, *account(store, name, nodes)]
    with writing_into(project.report) as folder, only_writer(folder):
        if replaced := replaced_report(project):
            warn(replaced)
        mark = part.mark(store)
        page = write_report(folder, project.title, summary(nodes), sections, texts, mark, about)
        files = {name: _digest((folder / name).read_bytes()) for name in (page.name, "tables.txt", *texts)}
        with replacing(folder / MADE_OF) as file:
            facts = {"of": project.label, "made_of": made_of, "page": page.name, "files": files}
            file.write(json.dumps(facts).encode())
        return page


def unchanged_page(part: Part, store: Store) -> Path | None:
    """The page, if it would be made of the same again, and all files are as they were written; else None."""
    folder = part.project.report.absolute()
    try:
        known = json_object(plain(folder / MADE_OF).read_bytes()) or {}
        files = {name: _digest(plain(folder / name).read_bytes()) for name in known["files"]}
        same = (
            known["page"] in files
            and files == known["files"]
            and known["made_of"] == ingredients(part, store)
        )
        return folder / known["page"] if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ingredients(part: Part, store: Store) -> str:
    """Digest of all that a report is made of: parameters, chunks and forecast as they lie there, code."""
    project, plan = part.project, part.plan
    name = project.workflow.name
    about = (store.path, name, project.title, project.mark, project.parameters, project.workflow.about)
    missing = [chunk.key for chunk in part.whole.missing]
    chunks = (store.location(chunk.node.stage.name, chunk.key) for chunk in plan.chunks)
    forms = sorted(Path(report.__file__).parent.glob("*.html"))
    files = [*chunks, store.inside(".forecasts") / f"{name}.json", *forms]
    written = [(file.name, file.stat().st_mtime_ns if file.exists() else 0) for file in files]
    package = project.definition.__module__.partition(".")[0]
    code = digest_of(dict.fromkeys(("pipeline", "pipeline.reading", "stages", "workflows", package)))
    return _digest(repr((*about, project.warnings, missing, written, code)).encode())


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _warnings(project: Project, sections: Sequence[Section]) -> list[Section]:
    """The plan's warnings, without that on plaquettes where one of the sections has it, by measured ones."""
    measured = any(TWO_GROUPS in section.text for section in sections)
    rows = [[warning] for warning in project.warnings if not (measured and TWO_GROUPS in warning)]
    text = "Input that is legal but rarely meant. Plan and run show the same warnings."
    return [Section("Warnings", text, [Table(["warning"], rows)])] if rows else []


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Wait a while for another process that writes a report into a folder, so that all files are of one."""
    handle, end = os.open(folder, os.O_RDONLY), monotonic() + PATIENCE
    try:
        with suppress(OSError):  # of a file system without such locks
            while not flocked(handle) and monotonic() < end:
                sleep(0.05)
        yield
    finally:
        os.close(handle)


@contextmanager
def writing_into(folder: Path) -> Iterator[Path]:
    """Make the folder; what the file system refuses is a mistake of the user's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
    except OSError as error:
        raise InputError(f"cannot write into {folder.absolute()}: {error.strerror or error}") from error
