"""Computing a project round after round, then its report: `quarkline run`, and jobs of campaigns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from pipeline import InputError, Outcome, Plan, Share, Store, explain, plan, run
from pipeline.reading.dashboard.watcher import Dashboard
from pipeline.reading.verification import with_sound_chunks
from pipeline.running.clusters import Cluster
from pipeline.running.clusters.local import Local
from pipeline.running.outcome import COMPLETE, FAILED
from pipeline.store.errors import DamagedChunkError
from pipeline.worker.checks import FRACTION, Checks
from stages.lqcd.kernels.checksum import checksum
from workflows.catalogue import dashboard_additions
from workflows.display import RunDisplay
from workflows.partial import Part, complete_part
from workflows.publishing import publish, unchanged_page
from workflows.rounds import Rounds
from workflows.shared.definition import Project
from workflows.stores import remarks
from workflows.terminal import EXIT_CODES, tell

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def checks_of(fraction: float | None = None) -> Checks:
    """Checks of a run by the library's checksum; fraction: of the chunks, that are repeated in part."""
    return Checks(FRACTION if fraction is None else fraction, checksum)


@dataclass
class Computing:
    """Computing one plan after the other, and telling a person how it goes."""

    project: Project
    workflow: Path
    wanted: Path | None
    """The store that was asked for instead of the file's."""
    results: Store
    cluster: Cluster
    end: float | None
    """By the monotonic clock, of all rounds together."""
    share: bool = False
    """True to be one of several drivers of the store."""
    check: float | None = None
    """Share of the chunks that are repeated in part, unless it is the usual one."""
    quiet: bool = False
    dashboard_port: int = 0
    remarks: list[str] = field(default_factory=list)
    """What was warned about, for who reads no text."""

    def __call__(self, plan: Plan) -> Outcome:
        for remark in remarks(plan, self.project, self.workflow, self.wanted):
            self.warn(remark)
        self.tell(_headline(explain(plan)))
        left = None if self.end is None else max(1.0, self.end - monotonic())
        share = Share(waits=self.project.in_rounds) if self.share else None
        with RunDisplay(quiet=self.quiet) as display:
            outcome = run(
                plan,
                self.results,
                cluster=self.cluster,
                time_limit=left,
                checks=checks_of(self.check),
                listener=display,
                share=share,
                watcher=Dashboard(self.dashboard_port, dashboard_additions),
            )
        self.tell(outcome.table())
        return outcome

    def warn(self, remark: str) -> None:
        """Say what was not said before."""
        if remark not in self.remarks:
            self.tell(f"warning: {remark}")
            self.remarks.append(remark)

    def tell(self, text: str) -> None:
        """Say how it goes, unless nobody reads."""
        if not self.quiet:
            tell(text)


@dataclass(frozen=True)
class Computed:
    """The end of a run: its rounds, the command's exit code, and the report."""

    rounds: Rounds
    exit_code: int
    page: Path | None
    """None where there is nothing to report, or for a fault."""
    fault: str
    """Why the report could not be written."""
    mark: str
    """Configurations that the results are of, where they are not of all."""
    warnings: list[str]


def carry_out(computing: Computing) -> Computed:
    """Compute round after round, then write the report of what there is.

    What decisions or the report read and find damaged is computed again, each chunk once.

    Raises:
        InputError: the report cannot be written, and nobody reads JSON.
    """
    return with_sound_chunks(computing.results, lambda: _carried_out(computing), computing.tell)


def _carried_out(computing: Computing) -> Computed:
    """Compute and report once. Raises DamagedChunkError, InputError."""
    project, results = computing.project, computing.results
    for warning in project.warnings:
        computing.tell(f"warning: {warning}")
    rounds = Rounds(project, results, computing.cluster.backend)
    rounds.drive(computing, computing.tell)
    part = _results(rounds, results, computing)
    kept = unchanged_page(part, results) if part else None
    page, fault = (kept, "") if kept else _publish(part, results, computing)
    mark = part.mark(results) if part else ""
    warnings = [*rounds.project.warnings, *computing.remarks]
    if fault:
        remedy = f"once that is mended, quarkline report {computing.workflow}{project.options} writes it"
        error = f"{fault}; all results are in {results.path}: {remedy}"
        if not computing.quiet:
            raise InputError(error)
        tell(f"error: {error}", err=True)
        return Computed(rounds, EXIT_CODES["mistake"], page, fault, mark, warnings)
    told = f"report{mark and f' ({mark})'}: {page}{' (unchanged)' if kept else ''}"
    computing.tell(told if page else f"store: {results.path}")
    interrupted = rounds.outcomes[-1].stopped in SIGNALS
    exit_code = EXIT_CODES["interrupted"] if interrupted else rounds.exit_status
    return Computed(rounds, exit_code, page, fault, mark, warnings)


def _results(rounds: Rounds, results: Store, computing: Computing) -> Part | None:
    """Results to report of a run that ended with its work or failures: all, or those of some configurations.

    Averages of what did not fail are computed, on this machine where the cluster's workers wait in a queue.
    """
    project, backend, outcome = rounds.project, rounds.backend, rounds.outcomes[-1]
    if outcome.stopped or outcome.exit_status not in (COMPLETE, FAILED):
        return None
    if outcome.exit_status == COMPLETE:
        return complete_part(project, rounds.plan.again(()), results)
    part = complete_part(project, plan(project.workflow, results, backend=backend), results)
    if part and part.project.mark:
        computing.tell(f"results of {part.project.mark}:")
        here = Local(workers=1, backend=backend) if computing.cluster.queued else computing.cluster
        replace(computing, cluster=here)(part.plan)
    return part


def _publish(part: Part | None, results: Store, computing: Computing) -> tuple[Path | None, str]:
    """Write the report of what there is; its page, or why it could not be written."""
    if part is None:
        return None, ""
    try:
        return publish(part, results, computing.warn), ""
    except DamagedChunkError:
        raise
    except InputError as error:
        return None, str(error)


def _headline(explained: str) -> str:
    """The first and, where something is missing, the last line of a plan."""
    first, *_, last = explained.splitlines()
    return f"{first}\n{last}" if last.startswith("projected") else first
