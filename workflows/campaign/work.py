"""Work of a campaign's job, by the same means as `quarkline run --share`."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import ClassVar

from pipeline.planning.manifest import Manifest
from pipeline.planning.plan import Plan
from pipeline.reading.verification import with_sound_chunks
from pipeline.running.clusters import Cluster
from pipeline.running.clusters.cuda import Cuda
from pipeline.running.clusters.hosts import Hosts
from pipeline.running.clusters.local import Local
from pipeline.running.event_log import state_of
from pipeline.running.failures import Failure
from pipeline.running.outcome import COMPLETE, ELSEWHERE, STOPPED
from pipeline.store.store import Store
from pipeline.worker.events import ChunkState
from pipeline.worker.sources import code_of
from stages.base.errors import InputError
from workflows.campaign.definition import Campaign
from workflows.catalogue import load_project
from workflows.computing import Computed, Computing, carry_out
from workflows.rounds import Rounds
from workflows.shared.definition import Project

MISTAKE = 2
"""Exit code of a job whose workflow file, or code, cannot be used."""


@dataclass
class Work:
    """The work of one job; `computed`: what came of it."""

    campaign: Campaign
    project: Project | None
    missing: int | None
    """Chunks of the workflow, of the round that it is in, when the job began."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Digests of the packages that compute, by name."""
    versions: str = ""
    """Stages whose version is not that of what the store holds, with both."""
    fault: str = ""
    """Why nothing can be computed."""
    computed: Computed | None = None

    COMPLETE: ClassVar[int] = COMPLETE
    FINAL: ClassVar[tuple[int, ...]] = (COMPLETE, ELSEWHERE)
    """Exit codes after which this chain has nothing left to do."""

    def carry_out(self, seconds: float) -> tuple[int, str]:
        """Compute for this time at most; returns the exit code and why it ended."""
        if self.project is None:
            return MISTAKE, self.fault
        campaign = self.campaign
        store = Store(campaign.store)
        cluster, end = cluster_of(campaign), monotonic() + seconds
        where = (self.project, campaign.workflow, campaign.store, store, cluster, end)
        self.computed = carry_out(Computing(*where, share=True, check=campaign.check))
        last = self.computed.rounds.outcomes[-1]
        failures = f"{len(last.failures)} failures, first: {last.failures[0]}" if last.failures else ""
        return self.computed.exit_code, last.stopped or failures or "all done"

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Chunks that failed, in the last round."""
        return self.computed.rounds.outcomes[-1].failures if self.computed else ()

    @property
    def out_of_time(self) -> bool:
        """True if the time was too short for the work."""
        return self.computed is not None and self.computed.exit_code == STOPPED

    @property
    def commits(self) -> int:
        """Chunks that this job committed."""
        outcomes = self.computed.rounds.outcomes if self.computed else ()
        return sum(outcome.count(ChunkState.DONE) for outcome in outcomes)

    def joules(self) -> float | None:
        """Joules of the chunks that this job committed, as far as they were measured; None where none was."""
        outcomes, store = self.computed.rounds.outcomes if self.computed else (), Store(self.campaign.store)
        try:
            states = [state_of(store, outcome.run) for outcome in outcomes if outcome.states]
        except OSError:  # the log is away
            return None
        measured = [joules for state in states for joules in state.joules.values()]
        return sum(measured) if measured else None


def work_of(campaign: Campaign) -> Work:
    """The work that is left for a campaign now; none where its workflow file, or its code, cannot be read."""
    store = Store(campaign.store)
    try:
        project = load_project(campaign.workflow, campaign.changes)
        last = with_sound_chunks(store, lambda: Rounds(project, store, campaign.site.backend), print)
        code = code_of(chunk.node.stage.function for chunk in last.plan.everything)
        return Work(campaign, project, len(last.plan.missing), code, _new_versions(store, last.plan))
    except Exception as error:  # of whatever the file names: a job says why it does nothing, and is followed
        return Work(campaign, None, None, fault=fault_text(error))


def fault_text(error: Exception) -> str:
    """One line on an error; its traceback is printed, unless it is a mistake of the user's."""
    if isinstance(error, InputError):
        return str(error)
    traceback.print_exception(error)
    return f"{type(error).__name__}: {error}"


def _new_versions(store: Store, plan: Plan) -> str:
    """Stages whose versions are not those of the store's last plan of the workflow."""
    manifest = Manifest.read(store, plan.workflow)
    stages = {(chunk.node.name, chunk.node.stage.name): chunk.node.stage.version for chunk in plan.everything}
    changed = {
        f"{content['stage']} {content['version']} -> {version}"
        for name, record in (manifest.nodes.items() if manifest else ())
        if (version := stages.get((name, (content := record.content)["stage"]), content["version"]))
        != content["version"]
    }
    return ", ".join(sorted(changed))


def cluster_of(campaign: Campaign) -> Cluster:
    """The workers of a job: the processors or GPUs of its nodes."""
    site = campaign.site.settled()
    if campaign.nodes > 1:
        job = site.job(campaign.name, os.devnull, campaign.nodes)
        return Hosts(site, launcher=campaign.system.on_each_node(job))
    if site.backend == "cuda":
        return Cuda(gpus_per_worker=site.gpus_per_worker)
    return Local(workers=site.processes)
