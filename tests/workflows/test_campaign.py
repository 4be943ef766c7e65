"""Campaigns by their ledger and their scripts, with a batch system that is none. (Real: tests/slurm.)"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from typer.testing import CliRunner

from pipeline import Store, plan
from pipeline.batch import BatchSystem, JobRequest, Seen, State
from pipeline.planning.manifest_files import write_manifest
from pipeline.reading.handover import handover
from pipeline.running.clusters.section import ClusterSection, Workers
from pipeline.running.event_log import EventLog
from pipeline.running.failures import Failure
from pipeline.running.outcome import Outcome
from pipeline.running.session import DIED
from pipeline.store.errors import StoreFullError
from pipeline.store.ledger import Ledger, LedgerEvent, LedgerState
from pipeline.worker.events import Event
from stages.base.errors import InputError
from workflows.campaign import definition, job, successor
from workflows.campaign.accounts import Accounts
from workflows.campaign.definition import Budget, Campaign, campaigns, read_campaign
from workflows.campaign.growth import as_submitted, grown
from workflows.campaign.queue import begin, campaign_lines, refuse_second, stop_all
from workflows.campaign.script import script
from workflows.campaign.successor import Successor
from workflows.campaign.work import work_of
from workflows.catalogue import load_project
from workflows.command import app

HOUR = 3600.0
ROOT = Path(__file__).parents[2]


class Paper(BatchSystem):
    """Jobs on paper."""

    kind = "slurm"
    prefix = "#SBATCH"
    task_variable = "TASK"

    def __init__(self) -> None:
        self.jobs: dict[str, State] = {}
        self.after: dict[str, str | None] = {}
        self.refuses = 0

    def options(self, job: JobRequest) -> list[str]:
        return [f"--job-name={job.name}", f"--nodes={job.nodes}", f"--array={job.tasks}"]

    def gpu_directives(self, job: JobRequest) -> list[str]:
        return []

    def on_each_node(self, job: JobRequest) -> str:
        return ""

    def submit(self, script: Path, after: str | None = None) -> str:
        if self.refuses:
            self.refuses -= 1
            raise InputError("sbatch refuses")
        assert script.read_text().startswith("#!/bin/bash\n#SBATCH --job-name=")
        number = str(len(self.jobs) + 1)
        self.jobs[number], self.after[number] = State.ALIVE, after
        return number

    def look(self, jobs: Sequence[str]) -> dict[str, Seen]:
        return {each: Seen(self.jobs.get(each.split("_")[0], State.ENDED)) for each in jobs}

    def cancel(self, jobs: Sequence[str]) -> bool:
        self.jobs |= {each.split("_")[0]: State.ENDED for each in jobs}
        return True


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    system = Paper()
    monkeypatch.setattr(definition, "batch_system", lambda kind: system)
    monkeypatch.setattr("pipeline.running.clusters.section.batch_system", lambda kind: system)
    return system


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    store = Store(tmp_path / "store")
    store.create()
    site = ClusterSection(kind="slurm", cores=4, prologue=("module load cuda",), environment={"A": "1 2"})
    return Campaign(
        "loops", tmp_path / "w.yaml", store.path, tmp_path, site, 1, 1, 3600, Budget(node_hours=10.0)
    )


def accounts(campaign: Campaign) -> Accounts:
    return Accounts.of(Ledger(Store(campaign.store)).state(), campaign.name)


def began(campaign: Campaign, job: str, missing: int = 7, chain: int = 0) -> None:
    facts = {"campaign": campaign.name, "host": "h", "nodes": 1, "missing": missing}
    Ledger(Store(campaign.store)).add(LedgerEvent.BEGAN, job=job, chain=chain, **facts)


def ended(
    campaign: Campaign, job: str, commits: int, seconds: float = HOUR, joules: float | None = None
) -> None:
    facts = {"campaign": campaign.name, "chain": 0, "seconds": seconds, "missing": 0, "reason": "why"}
    facts |= {"node_seconds": seconds, "joules": joules, "commits": commits}
    Ledger(Store(campaign.store)).add(LedgerEvent.ENDED, job=job, **facts)


def test_the_script_of_a_job(campaign: Campaign, paper: Paper) -> None:
    text = script(replace(campaign, chains=3))
    lines = text.splitlines()
    assert lines[1] == "#SBATCH --job-name=loops" and "#SBATCH --array=3" in lines
    assert lines[-6:-3] == ["export QUARKLINE_JOB_BEGAN=$(date +%s)", "export A='1 2'", "module load cuda"]
    assert lines[-2] == f"cd {campaign.folder}"
    assert lines[-1].endswith(f'-m workflows.campaign {campaign.place} "$TASK"')
    assert script(campaign, 2).endswith(f" {campaign.place} 2\n")
    campaign.write()
    assert read_campaign(campaign.place) == campaign
    with pytest.raises(InputError, match="is no campaign"):
        read_campaign(campaign.folder)


def test_files_beside_the_workflow_are_not_imported(campaign: Campaign, traps: Path) -> None:
    """A job gets as far as reading its campaign, which is none."""
    path = f"export PYTHONPATH={ROOT}:$PYTHONPATH"  # which ends in a colon where nothing is set
    site = ClusterSection(kind="slurm", cores=4, prologue=("unset PYTHONPATH", path))
    text = script(replace(campaign, folder=traps, site=site))
    done = subprocess.run(["bash", "-c", text], cwd=traps, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "is no campaign of `quarkline submit`" in done.stderr


OF_AN_EARLIER_VERSION = """{"name": "quarkline-loops-1a2b3c", "workflow": "w.yaml", "store": "/s",
"folder": "/f", "site": {"kind": "slurm", "backend": "cuda", "where": "",
"hosts": [], "gpus": 4, "gpus_per_worker": 1, "gpu_memory": null,
"processes": null, "cores": 32, "memory": 200000000000, "walltime": 3600,
"partition": null, "account": null, "directives": ["--exclusive"],
"prologue": null, "container": "", "python": "", "environment": {"A": "b"},
"interface": null, "workers": {"min": 0, "max": 4}, "dashboard_port": 0},
"nodes": 1, "chains": 2, "walltime": 3600, "budget": {"node_hours": 10.0,
"joules": null}, "check": null}"""


def test_campaigns_of_earlier_versions_are_read(campaign: Campaign) -> None:
    """One of a batch system that is not known any more stands in no new one's way."""
    store = Store(campaign.store)
    place = store.path / ".campaigns" / "quarkline-loops-1a2b3c"
    place.mkdir(parents=True)
    (place / "campaign.json").write_text(OF_AN_EARLIER_VERSION)
    asked = {"gpus": 4, "cores": 32, "memory": "200GB", "walltime": "1h", "directives": ("--exclusive",)}
    site = ClusterSection(kind="slurm", environment={"A": "b"}, workers=Workers(min=0, max=4), **asked)
    (read,) = campaigns(store)
    assert read.site == site and (read.chains, read.budget) == (2, Budget(node_hours=10.0))
    (place / "campaign.json").write_text(OF_AN_EARLIER_VERSION.replace("slurm", "sge"))
    assert not campaigns(store)
    refuse_second(store)
    Ledger(store).bring(
        {"event": LedgerEvent.BUDGET, "campaign": read.name, "node_hours": None, "joules": None}
    )
    assert lines(campaign) == f"campaign {read.name}: its batch system, sge, cannot be asked any more"


def test_a_job_that_cannot_import_its_package_says_so_in_the_ledger(campaign, paper, traps):
    """Folders that PYTHONPATH names are searched, broken packages and all; the store is read by others."""
    site = ClusterSection(
        kind="slurm", cores=4, environment={"PYTHONPATH": f"{ROOT}:{traps}", "SLURM_JOB_ID": "17"}
    )
    (traps / "sitecustomize.py").unlink()
    (traps / "json.py").unlink()
    (traps / "random.py").unlink()
    campaign = replace(campaign, name="quarkline-loops-1a2b3c", site=site)
    campaign.write()
    done = subprocess.run(["bash", "-c", script(campaign)], cwd=traps, capture_output=True, text=True)
    assert done.returncode == 1 and "a file of the folder was imported" in done.stderr
    ledger = Ledger(Store(campaign.store))
    facts = {"campaign": campaign.name, "node_hours": None, "joules": None}
    ledger.bring({"event": LedgerEvent.BUDGET, **facts})
    ledger.bring({"event": LedgerEvent.SUBMITTED, "campaign": campaign.name, "job": "17", "time": 1.0})
    (only,) = accounts(campaign).jobs
    assert (only.job, only.state, only.commits) == ("17", "ended", 0)
    reason = "it died at its start: RuntimeError: a file of the folder was imported"
    assert only.reason == reason and f"job 17 ended ({reason}), and none follows it" in lines(campaign)


def test_a_second_campaign_is_refused_until_the_first_is_stopped(campaign: Campaign, paper: Paper) -> None:
    assert begin(replace(campaign, chains=2)) == ["1_0", "1_1"]
    store = Store(campaign.store)
    with pytest.raises(InputError, match=r"campaign loops is at work on .* \(jobs 1_0, 1_1\)"):
        refuse_second(store)
    assert stop_all(store).jobs == ["1_0", "1_1"]
    refuse_second(store)
    assert accounts(campaign).objection("9", 1, 3, HOUR) == "stopped by `quarkline submit --stop`"


@pytest.mark.parametrize("said", [{}, {"reason": None}, {"reason": ["why"]}], ids=str)
def test_a_stop_without_a_reason_is_one(campaign: Campaign, said: dict[str, object]) -> None:
    """As another version may write it."""
    ledger = Ledger(Store(campaign.store))
    ledger.bring({"event": "stopped", "time": 1.0, "campaign": campaign.name, "chain": 0, **said})
    assert accounts(campaign).objection("9", 0, 3, HOUR)
    assert not accounts(campaign).objection("9", 1, 3, HOUR)


def test_a_submission_that_does_not_say_its_memory_had_that_of_the_file(campaign: Campaign) -> None:
    """As another version may write it."""
    site = campaign.site.model_copy(update={"memory": 64 << 30})
    ledger = Ledger(Store(campaign.store))
    ledger.bring({"event": "submitted", "campaign": campaign.name, "job": "1", "walltime": 7200})
    submitted = as_submitted(replace(campaign, site=site), ledger.entries(), "1")
    assert (submitted.site.memory, submitted.walltime) == (64 << 30, 7200)


def test_two_jobs_that_bring_nothing_end_a_chain(campaign: Campaign) -> None:
    began(campaign, "1")
    ended(campaign, "1", 0)
    began(campaign, "2")  # killed: it did not live to say anything
    assert accounts(campaign).objection("9", 0, 7, HOUR) == (
        "2 jobs in a row brought nothing (1: why; 2: it was killed)"
    )
    assert not accounts(campaign).objection("9", 0, 6, HOUR)  # another chain brought something meanwhile
    assert not accounts(campaign).objection("9", 1, 7, HOUR)


def test_a_job_with_more_walltime_than_those_that_brought_nothing_gets_its_trial(campaign: Campaign) -> None:
    """Walltimes of an hour, two and four: the third job is what the chain of futile ones was for."""
    previous = None
    for number, walltime in enumerate((HOUR, 2 * HOUR, 4 * HOUR, 4 * HOUR), start=1):
        replace(campaign, walltime=int(walltime)).note_submitted(str(number), 0, previous)
        previous = str(number)
    for futile in ("1", "2"):
        began(campaign, futile)
        ended(campaign, futile, 0)
    assert not accounts(campaign).objection("3", 0, 7, HOUR)
    assert "2 jobs in a row brought nothing" in accounts(campaign).objection("2", 0, 7, HOUR)
    began(campaign, "3")
    ended(campaign, "3", 0)
    assert "2 jobs in a row brought nothing" in accounts(campaign).objection("4", 0, 7, HOUR)


def test_a_budget_is_shared_by_chains(campaign: Campaign) -> None:
    began(campaign, "1")
    ended(campaign, "1", 3, 4 * HOUR, 8.0e6)
    budget = Budget(node_hours=10.0)
    left = lambda budget, now=0.0: accounts(campaign).seconds_left(budget, 2, 3, now, 9 * HOUR)  # noqa: E731
    assert left(budget) == pytest.approx(HOUR)  # 6 node-hours for 3 chains of 2 nodes
    assert left(Budget(joules=20.0e6)) == pytest.approx(HOUR)  # 2e6 J for a node-hour
    assert left(Budget()) == 9 * HOUR
    assert "the budget is spent" in accounts(campaign).objection("9", 0, 7, left(Budget(node_hours=4.0)))
    began(campaign, "2")
    now = accounts(campaign).jobs[-1].began + 3 * HOUR  # it runs, or was killed: counted until now
    assert left(budget, now) == pytest.approx(HOUR / 2)


def told(campaign: Campaign, *entries: tuple[float, LedgerEvent, str, dict[str, Any]]) -> LedgerState:
    """A ledger with entries as they would be written at given times; all have the campaign's name."""
    ledger = Ledger(Store(campaign.store))
    for moment, event, number, facts in entries:
        common = {"campaign": campaign.name, "job": number, "chain": 0, "nodes": 2, "missing": 7}
        ledger.bring({"format": 1, "time": moment, "event": event, **common, **facts})
    return ledger.state()


def test_a_killed_job_costs_its_own_walltime_and_not_beyond_what_followed_it(campaign: Campaign) -> None:
    """A job of 120 s is requeued after 80 s and killed; its successors ask for four times as long."""
    submitted, began, end = LedgerEvent.SUBMITTED, LedgerEvent.BEGAN, LedgerEvent.ENDED
    entries = told(
        campaign,
        (1000.0, submitted, "1", {"after": None, "walltime": 120}),
        (1000.0, began, "1", {}),
        (1080.0, began, "1", {}),
        (1081.0, submitted, "2", {"after": "1", "walltime": 480}),
    )
    cost = lambda now: Accounts.of(entries, campaign.name).ledger.node_seconds(now)  # noqa: E731
    assert cost(1090.0) == 2 * (80.0 + 10.0)
    assert cost(9000.0) == 2 * (80.0 + 120.0)
    entries = told(campaign, (1100.0, began, "2", {}))  # which waited for the end of 1
    assert cost(1100.0) == 2 * (80.0 + 20.0)
    assert cost(9000.0) == 2 * (80.0 + 20.0 + 480.0)
    entries = told(campaign, (1150.0, end, "2", {"node_seconds": 99.0, "joules": 5.0, "commits": 1}))
    assert cost(9000.0) == 2 * (80.0 + 20.0) + 99.0
    assert Accounts.of(entries, campaign.name).jobs[-1].missing == 7


def test_budget_dashboard_and_hand_over_agree_on_a_store_that_another_was_merged_into(campaign):
    """Job ids are those of a cluster: 17 of the other one is another job, and no cost of this campaign."""
    end = {"node_seconds": 50 * HOUR, "joules": 1e6, "commits": 3, "seconds": 50 * HOUR}
    before = {"campaign": "before", "walltime": 600}
    entries = told(
        campaign,
        (100.0, LedgerEvent.BEGAN, "16", before),
        (900.0, LedgerEvent.BUDGET, "", {"node_hours": 10.0, "joules": None}),
        (1000.0, LedgerEvent.SUBMITTED, "17", {"after": None, "walltime": HOUR}),
        (1000.0, LedgerEvent.BEGAN, "17", {}),
        (1000.0 + HOUR, LedgerEvent.ENDED, "17", {**end, "node_seconds": 2 * HOUR, "joules": 5.0}),
        (2000.0, LedgerEvent.ENDED, "17", {**end, "from": "/there"}),
        (3000.0, LedgerEvent.BEGAN, "18", {"walltime": 1800}),
        (4000.0, LedgerEvent.STOPPED, "", {"from": "/there", "reason": "theirs"}),
    )
    spent = Accounts.of(entries, campaign.name)
    shown = entries.last_campaign
    page = {(job.job, job.origin): job.charged for job in handover(campaign.store).jobs}
    assert spent.ledger.node_seconds(1e9) == 3 * HOUR and spent.ledger.joules == shown.joules == 5.0
    assert shown.node_seconds(1e9) == 3 * HOUR and shown.last_budget.node_hours == 10.0 and not shown.stops
    states = {"16": "began", "17": "ended", "18": "began"}
    assert [(job.job, job.state) for job in entries.of_campaign().jobs] == list(states.items())
    charged = {("16", ""): 1200.0, ("17", ""): 2 * HOUR, ("17", "/there"): 50 * HOUR, ("18", ""): HOUR}
    assert page == charged


def test_a_successor_follows_however_a_job_ends(campaign, paper, monkeypatch):
    monkeypatch.setattr(successor, "AGAIN", 0.01)
    campaign.write()
    ledger = Ledger(Store(campaign.store))
    paper.refuses = 2
    with Successor(campaign, ledger, 0, "17", accounts(campaign)) as follower:
        follower._thread.join(5.0)
        assert paper.after == {"1": "17"}
        with Successor(
            campaign, ledger, 0, "17", accounts(campaign)
        ):  # the same job, put into the queue again
            assert list(paper.jobs) == ["1"]
        follower.take_back(everybody=False)
    assert paper.jobs == {"1": State.ENDED}
    assert [entry.job for entry in ledger.entries()] == ["1"]


def test_who_is_last_takes_all_back_that_waits(campaign: Campaign, paper: Paper) -> None:
    ledger = Ledger(Store(campaign.store))
    begin(campaign)
    began(campaign, "1")
    with (
        Successor(campaign, ledger, 0, "1", accounts(campaign)) as mine,
        Successor(campaign, ledger, 1, "99", accounts(campaign)),
    ):
        mine.take_back(everybody=True)
    assert paper.jobs == {"1": State.ALIVE, "2": State.ENDED, "3": State.ENDED}


def job_of(
    patch: pytest.MonkeyPatch, campaign: Campaign, number: str, ends: tuple[int, str], *known: Any
) -> list[float]:
    """Jobs of this number end so from now on; the seconds that they are given. known: code and versions."""
    given: list[float] = []

    class Done(job.Work):
        def carry_out(self, seconds: float) -> tuple[int, str]:
            given.append(seconds)
            return ends

    found = Done(campaign, None, 7, *known)  # type: ignore[arg-type]
    patch.setattr(job, "work_of", lambda campaign: found)
    patch.setenv("SLURM_JOB_ID", number)
    return given


def test_a_job_says_what_came_of_it(campaign, paper, monkeypatch, capsys):
    campaign.write()
    given = job_of(monkeypatch, campaign, "17", (0, "all done"))
    monkeypatch.setenv("QUARKLINE_JOB_BEGAN", "1000.0")
    assert job.main(campaign.place, 0, now=lambda: 1100.0) == 0
    assert given == [3600.0 - 100.0 - 120.0]
    events = [entry.event for entry in Ledger(Store(campaign.store)).entries()]
    assert events == ["began", "submitted", "ended"]
    assert paper.jobs == {"1": State.ENDED}
    stop_all(Store(campaign.store))
    assert job.main(campaign.place, 0) == 0
    assert "ends here: stopped by" in capsys.readouterr().out


def test_a_job_works_where_its_ledger_finds_no_room(campaign, paper, monkeypatch, capsys):
    """It has a successor, and takes it back."""
    campaign.write()

    def full(*_: object) -> None:
        raise StoreFullError("there is no room for the ledger")

    job_of(monkeypatch, campaign, "17", (0, "all done"))
    monkeypatch.setattr(Ledger, "bring", full)
    assert job.main(campaign.place, 0) == 0
    assert paper.jobs == {"1": State.ENDED}
    said = capsys.readouterr().err
    assert said.count("warning: there is no room for the ledger; the job goes on") == 2
    assert "the ledger does not know the next job" in said


def test_joules_of_a_job_are_those_of_its_logs(campaign: Campaign) -> None:
    """Whatever became of the chunks since."""
    store, about = Store(campaign.store), {"node": "n", "stage": "s", "coordinates": {}, "time": 1.0}
    with EventLog(store, "first") as log:
        for key, joules in (("a", 2.0), ("b", None), ("c", 3.0)):
            log(Event.of({**about, "event": "done", "key": key, "joules": joules}))
    outcomes = [Outcome(run, "w", {"n": Counter()} if run == "first" else {}) for run in ("first", "none")]
    carried = SimpleNamespace(rounds=SimpleNamespace(outcomes=outcomes))
    assert job.Work(campaign, None, 0, computed=carried).joules() == 5.0  # type: ignore[arg-type]
    assert job.Work(campaign, None, 0).joules() is None


def test_the_next_job_asks_for_what_this_one_lacked(campaign: Campaign, paper: Paper) -> None:
    campaign = replace(campaign, site=campaign.site.model_copy(update={"memory": 1000}))
    died, other = Failure("loops", {}, DIED), Failure("loops", {}, "did not converge")
    more, why = grown(campaign, campaign, [other, died], 3, False)
    assert more.site.memory == 1500 and "workers died with chunks of loops" in why
    assert grown(campaign, campaign, [other], 0, False) == (campaign, "")
    nearly = replace(campaign, site=campaign.site.model_copy(update={"memory": 3000}))
    assert grown(campaign, nearly, [died], 3, False)[0].site.memory == 4000  # no more than 4 times the first
    most = replace(
        campaign, site=campaign.site.model_copy(update={"memory": 4000}), walltime=4 * campaign.walltime
    )
    assert grown(campaign, most, [died], 0, True) == (most, "")
    nearly = replace(campaign, walltime=3 * campaign.walltime)
    assert grown(campaign, nearly, [], 0, True)[0].walltime == 4 * campaign.walltime
    longer, why = grown(campaign, campaign, [], 0, True)
    assert longer.walltime == 2 * campaign.walltime and "no chunk was done" in why
    assert grown(campaign, campaign, [], 1, True) == (campaign, "")
    campaign.write()
    ledger = Ledger(Store(campaign.store))
    with Successor(campaign, ledger, 0, "17", accounts(campaign)) as follower:
        follower.ask_for(longer)
        assert paper.jobs == {"1": State.ENDED, "2": State.ALIVE}
        paper.refuses = 1
        follower.ask_for(more)  # the partition has no such nodes: the job before stays
    assert paper.jobs == {"1": State.ENDED, "2": State.ALIVE}
    assert as_submitted(campaign, ledger.entries(), "2") == longer
    assert [accounts(campaign).follower(each) for each in ("17", "2")] == ["2", None]


SITE = ("g2_disconnected.yaml", "--cluster", "slurm", "--set", "cluster.walltime=01:00:00")


@pytest.fixture
def g2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command, in a folder with a file that `init` wrote."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(app, ["init", "g2_disconnected"]).exit_code == 0
    return lambda *words: runner.invoke(app, [*words])


@pytest.mark.parametrize(
    ("option", "share"), [((), None), (("--check", "0.2"), 0.2), (("--check", "0"), 0.0)]
)
def test_the_share_of_chunks_to_check_reaches_the_driver_in_the_job(monkeypatch, paper, g2, option, share):
    rounds: list[Any] = []
    done = g2("submit", *SITE, *option, "--set", "masses.light=0.1")
    assert done.exit_code == 0 and "submit g2_disconnected.yaml --set masses.light=0.1 --stop" in done.output

    def carried(compute: Any) -> SimpleNamespace:
        rounds.append(compute)
        return SimpleNamespace(exit_code=0, rounds=SimpleNamespace(outcomes=[Outcome("run", "g2", {})]))

    monkeypatch.setattr("workflows.campaign.work.carry_out", carried)
    (submitted,) = campaigns(Store("g2-store"))
    assert work_of(submitted).carry_out(60.0) == (0, "all done")
    assert [compute.check for compute in rounds] == [share]
    assert [compute.project.parameters.masses.light for compute in rounds] == [0.1]


def test_what_a_job_knows_of_its_code_and_status_of_its_campaign(paper, g2):
    assert g2("submit", *SITE, "--node-hours", "2").exit_code == 0
    store = Store("g2-store")
    (submitted,) = campaigns(store)
    project = load_project(submitted.workflow)
    planned = plan(project.workflow, store)
    write_manifest(store, planned.workflow, planned.backend, planned.everything, planned.about)
    work = work_of(submitted)
    assert (work.missing, work.versions, work.fault) == (len(planned.missing), "", "")
    assert set(work.code) == {"pipeline", "stages"}
    file = store.path / ".workflows" / f"{planned.workflow}.json"
    content = json.loads(file.read_text())
    content["nodes"]["loops_light"]["version"] = "0"
    file.write_text(json.dumps(content))
    assert re.fullmatch(r"current_loops 0 -> \d+", work_of(submitted).versions)
    paper.jobs["1"] = State.ENDED
    said = g2("status", "g2-store").output
    assert f"campaign {submitted.name}, 0.00 of 2.00 node-hours: job 1 ended before it began to work" in said
    document = json.loads(g2("status", "g2-store", "--json").output)
    assert document["campaigns"][0] in said


def lines(campaign: Campaign, *complete: str) -> str:
    return "\n".join(campaign_lines(Store(campaign.store), complete))


def submitted(campaign: Campaign) -> Campaign:
    made = replace(campaign, name="quarkline-loops-1a2b3c")
    begin(made)
    return made


def test_status_names_a_campaign_that_died_at_its_start(campaign: Campaign, paper: Paper) -> None:
    assert not lines(campaign)
    campaign = submitted(campaign)
    assert lines(campaign) == "campaign quarkline-loops-1a2b3c, 0.00 of 10.00 node-hours: job 1 waits"
    paper.jobs["1"] = State.ENDED
    said = lines(campaign)
    assert "job 1 ended before it began to work: it was cancelled, or died at its start" in said
    assert f"no job of it is left: `quarkline submit {campaign.workflow}` goes on" in said
    plan = campaign.store / ".workflows" / "loops.json"
    plan.touch()
    os.utime(plan, (1.0, 1.0))
    assert lines(campaign, "loops") == said  # a plan from before it was submitted says nothing of it
    plan.touch()
    assert lines(campaign, "loops").endswith("node-hours: complete")


def test_status_names_a_spent_budget_a_killed_chain_and_jobs_that_wait(campaign, paper):
    campaign = submitted(campaign)
    began(campaign, "1")
    campaign.note_submitted(campaign.system.submit(campaign.place / "first.sh", "1"), 0, "1")
    assert "job 1 at work; job 2 waits" in lines(campaign)
    paper.jobs |= dict.fromkeys(("1", "2"), State.ENDED)
    assert "job 2 after 1 ended before it began to work: it was cancelled" in lines(campaign)
    began(campaign, "2")
    assert "job 2 was killed: cancelled" in lines(campaign)
    ended(campaign, "2", 3, 10 * HOUR)
    assert "10.00 of 10.00 node-hours: complete" in lines(campaign)
    Ledger(Store(campaign.store)).add(
        LedgerEvent.ENDED, campaign=campaign.name, job="2", missing=4, reason="why"
    )
    assert "job 2 ended (why), and none follows it" in lines(campaign)
    paper.jobs["1"] = State.UNKNOWN
    assert "job 1 at work or gone: slurm does not answer here" in lines(campaign)
    paper.jobs["1"] = State.ENDED
    facts = {"campaign": campaign.name, "chain": 0}
    Ledger(Store(campaign.store)).add(
        LedgerEvent.STOPPED, **facts, reason="the budget is spent: 0 s are left"
    )
    assert "chain 0 ended: the budget is spent: 0 s are left; no job of it is left" in lines(campaign)
    named = {"campaign": campaign.name, "time": "late", "nodes": {}, "code": 3}
    for hostile in ({"event": []}, {"event": "stopped", "chain": []}, {"event": "began", "job": [7]}):
        Ledger(Store(campaign.store)).bring({**named, **hostile})
    assert "chain 0 ended: the budget is spent" in lines(campaign)
    (campaign.place / "campaign.json").write_text("{")
    assert "is damaged, not readable, or of another version" in lines(campaign)


def run_job(campaign: Campaign, number: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("SLURM_JOB_ID", number)
    return job.main(campaign.place, 0)


def test_jobs_that_die_at_their_start_end_a_chain_with_a_word(campaign, paper, monkeypatch, capsys):
    """By a package that cannot be imported and by a file that is gone; each is followed by one more."""
    campaign = submitted(campaign)

    def broken(path: Path, changes: tuple[str, ...]) -> None:
        raise ModuleNotFoundError("No module named 'polyakov'")

    monkeypatch.setattr("workflows.campaign.work.load_project", broken)
    assert run_job(campaign, "1", monkeypatch) == 2
    assert paper.after == {"1": None, "2": "1"} and "Traceback" in capsys.readouterr().err
    monkeypatch.setattr("workflows.campaign.work.load_project", load_project)
    assert run_job(campaign, "2", monkeypatch) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert run_job(campaign, "3", monkeypatch) == 0
    said = lines(campaign)
    assert "2 jobs in a row brought nothing (1: ModuleNotFoundError: No module named 'polyakov'; 2: " in said
    assert "w.yaml" in said and paper.after["3"] == "2" and "4" not in paper.jobs


def test_a_job_after_an_upgrade_goes_on_if_stage_versions_agree(campaign, paper, monkeypatch):
    campaign = submitted(campaign)

    def ends(number: str, code: str, versions: str = "") -> int:
        known = ({"pipeline": "p", "stages": code}, versions)
        job_of(monkeypatch, campaign, number, (3, "stopped by the time limit"), *known)
        return job.main(campaign.place, 0)

    assert ends("1", "a4a71c16") == 3
    # what the store has is of an older version than this whole campaign
    assert ends("2", "a4a71c16", "loops 1 -> 2") == 3 and "other code" not in lines(campaign)
    Ledger(Store(campaign.store)).add(LedgerEvent.ENDED, campaign=campaign.name, job="2", commits=1)
    assert ends("3", "449a2b0b") == 3
    said = "job 3 went on with other code than the jobs before it (stages a4a71c16 there, 449a2b0b here)"
    assert f"{said}, by the same versions of all stages" in lines(campaign)
    entries = [each for each in Ledger(Store(campaign.store)).entries() if each.event == "began"]
    assert [bool(each.upgrade) for each in entries] == [False, False, True]
    Ledger(Store(campaign.store)).add(LedgerEvent.ENDED, campaign=campaign.name, job="3", commits=1)
    assert ends("4", "0ld", "loops 1 -> 2") == 0
    assert "other versions than the jobs before it (loops 1 -> 2): submit again" in lines(campaign)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cluster", "local"], "kind local is no batch system"),
        (["--cluster", "slurm"], "a job must know its walltime"),
        (["--node-hours", "-3"], "'-3' is no number above 0"),
        (["--check", "2"], "'2' is no share: give a number from 0 to 1"),
        (["--jobs", "none"], "'none' is no whole number"),
        (["--stop"], "nothing was submitted for store"),
    ],
)
def test_mistakes(g2: Callable[..., Any], arguments: list[str], said: str) -> None:
    Store("g2-store").create()
    with dask.config.set({"jobqueue.slurm.walltime": None}):
        done = g2("submit", "g2_disconnected.yaml", *arguments)
    assert done.exit_code
    assert said in " ".join(f"{done.exception} {done.output}".replace("│", "").split())
