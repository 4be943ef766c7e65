"""The hand-over page: one self-contained file that tells a person how a store stands and how to go on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted
from pipeline.reading.handover import Handover, JobCost, WorkflowState
from pipeline.reading.report import Details, Section, Table, page_text
from pipeline.reading.status import RunStatus
from pipeline.store.durable import write_atomically
from stages.base.errors import InputError

RUNS = 50
"""Runs that the page lists."""


def write_handover(facts: Handover, path: str | os.PathLike[str]) -> Path:
    """Write the page to a file, as a whole.

    Raises:
        InputError: it cannot be written.
    """
    target = Path(path).absolute()
    page = page_text(f"Hand-over of {facts.store}", _subtitle(facts), list(_sections(facts)), {})
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, page)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    return target


def _subtitle(facts: Handover) -> str:
    missing = sum(entry.chunks for workflow in facts.workflows for entry in workflow.missing)
    state = f"{counted(missing, 'chunk')} missing" if missing else "nothing is missing"
    driven = f"driven by {', '.join(facts.drivers)}" if facts.drivers else "no active run"
    return f"As of {facts.written} UTC: {state}, {driven}."


def _sections(facts: Handover) -> Iterator[Section]:
    yield _how_to_go_on(facts)
    yield _missing(facts)
    yield _what_ran(facts)
    yield _cost(facts)
    yield _code(facts)
    yield _damage(facts)
    for workflow in facts.workflows:
        yield _file(workflow)
    for name, text in facts.campaigns.items():
        yield Section(f"Campaign {name}", "", [Details("Site, nodes, walltime and budget", text)])


def _how_to_go_on(facts: Handover) -> Section:
    text = (
        "Each command computes what is missing of a workflow and nothing else; it may be interrupted and "
        "given again. It uses the parameter file that is kept in the store."
    )
    if facts.drivers:
        text = f"At this moment {', '.join(facts.drivers)} drives the store: wait, or stop it. {text}"
    lines = []
    for workflow in facts.workflows:
        state = "complete; writes the report again" if workflow.is_complete else "goes on"
        lines += [f"# {workflow.name}: {state}", workflow.command]
        if workflow.folder and not Path(workflow.folder).is_dir():
            lines.append(f"# {workflow.folder} is not on this machine: go where the file's paths lead")
        if not workflow.file:
            lines.append(
                "# its file is not in the store, which an earlier version wrote: see its parameters below"
            )
        lines.append("")
    for name in facts.campaigns:
        lines += [f"# {name} was submitted to a batch system as its file below says; in the same folder:"]
        lines += [f"quarkline submit FILE --store {facts.store} --cluster SITE", ""]
    lines += [f"# stopped: {text}" for text in facts.stops]
    lines += ["# how it stands", f"quarkline status {facts.store}"]
    lines += ["# whether all that is stored is what was written", f"quarkline verify {facts.store}"]
    targets = [Details("Targets", "\n".join(facts.targets), unfolded=True)] if facts.targets else []
    return Section("How to go on", text, [Details("Commands", "\n".join(lines), unfolded=True), *targets])


def _missing(facts: Handover) -> Section:
    rows = [
        [workflow.name, entry.node, entry.chunks, entry.where, entry.reason]
        for workflow in facts.workflows
        for entry in workflow.missing
    ]
    if not rows:
        return Section("What is missing", "Nothing: every chunk that the workflows name is there.")
    text = "Chunks that no run has committed yet, and the error of those whose last computation failed."
    return Section("What is missing", text, [Table(["workflow", "node", "chunks", "where", "why"], rows)])


def _what_ran(facts: Handover) -> Section:
    rows = [_run_row(run) for run in facts.runs[:RUNS]]
    parts: list[Table | Details] = [Table(["run", "workflow", "took", "end", "chunks"], rows)] if rows else []
    for run in facts.runs[:RUNS]:
        if run.failures:
            parts.append(Details(f"Failures of run {run.run}", "\n".join([*run.failures, f"log: {run.log}"])))
    states = ", ".join(facts.in_flight)
    return Section("What ran", f"Chunks in flight whose state is kept: {states or 'none'}.", parts)


def _run_row(run: RunStatus) -> list[object]:
    began = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.started))
    took = duration_text(run.ended - run.started) if run.ended else None
    end = f"stopped by {run.stopped}" if run.stopped else "ended" if run.ended else "interrupted, or at work"
    return [f"{run.run} ({began} UTC)", run.workflow, took, end, f"{run.ends or 'none'}, of {run.missing}"]


def _cost(facts: Handover) -> Section:
    rows = [
        [workflow.name, node.node, node.stored, node.chunks, f"{node.seconds:.1f}", _rounded(node.joules)]
        for workflow in facts.workflows
        for node in workflow.nodes
    ]
    drawn = (
        f", {facts.joules:.0f} joules"
        if facts.joules is not None
        else "; energy was not measured for all of it"
    )
    text = f"{duration_text(facts.seconds)} of work in the chunks that are there{drawn}."
    columns = ["workflow", "node", "stored", "of", "seconds", "joules"]
    parts = [Table(columns, rows, "Work by node; a dash: not measured.")]
    if facts.jobs:
        own, others = (
            sum(job.charged for job in facts.jobs if bool(job.origin) == brought) for brought in (False, True)
        )
        text += f" Batch jobs took {own / 3600:.2f} node-hours, lost computations included"
        text += f"; those of merged stores {others / 3600:.2f}." if others else "."
        jobs = [_job_row(job) for job in facts.jobs]
        columns = ["job", "seconds", "node-seconds", "joules", "commits", "end", "from"]
        parts.append(Table(columns, jobs, "Batch jobs, by the ledger."))
    return Section("What it cost", text, parts)


def _job_row(job: JobCost) -> list[object]:
    spent = [_rounded(value) for value in (job.seconds, job.node_seconds, job.joules)]
    return [job.job, *spent, job.commits, job.reason, job.origin]


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"


def _code(facts: Handover) -> Section:
    parts = [
        Table(["code", "chunks"], list(facts.codes.items())),
        Table(["machine and device", "chunks"], list(facts.devices.items())),
    ]
    return Section("Code and machines", "", parts)


def _damage(facts: Handover) -> Section:
    if facts.damaged:
        return Section("What is damaged", "", [Details("Chunks", "\n".join(facts.damaged), unfolded=True)])
    text = "No record is damaged, and no chunk was set aside. The command verify reads the numbers, too."
    return Section("What is damaged", text)


def _file(workflow: WorkflowState) -> Section:
    text = f"It was run as {workflow.path} in {workflow.folder}." if workflow.path else ""
    content = workflow.file or json.dumps(workflow.parameters, indent=2)
    name = f"Parameter file of {workflow.name}"
    return Section(name, text, [Details(workflow.title, content, unfolded=True)])
