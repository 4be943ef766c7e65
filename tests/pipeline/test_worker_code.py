"""Workers with other code than their driver's, an older version or an edited source: nothing is committed."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import toy_stages as toys
from distributed import LocalCluster

from campaign import HERE, Campaign
from pipeline import Place, Store, Workflow, plan, run
from pipeline.running.clusters.choose import choose
from pipeline.running.event_log import read_events
from pipeline.worker import sources
from pipeline.worker.sources import digest_of, sources_of

STAGE = """
from typing import Annotated, NamedTuple
import numpy as np
from pipeline import At, Dims, stage

class Number(NamedTuple):
    value: Annotated[np.ndarray, Dims("n")]

@stage(version="{version}", over=("config",))
def number(*, at: At) -> Number:
    return Number(np.full(1, {value}))
"""


@pytest.fixture
def old_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster of which the worker has loaded version 1 of a stage."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "measured_elsewhere.py").write_text(STAGE.format(version=1, value=1.0))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "measured_elsewhere", raising=False)
    options = {"memory_limit": 0, "dashboard_address": None, "resources": {"device": 1}}
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", **options)
    with cluster:
        yield cluster.scheduler_address


def _load() -> None:
    import measured_elsewhere  # type: ignore[import-not-found]  # noqa: F401


def computed(store: Store, address: str) -> object:
    from measured_elsewhere import number

    w = Workflow("elsewhere")
    w.add(number, place=Place(over={"config": ["a", "b"]}))
    return run(plan(w, store), store, cluster=choose(address))


@pytest.mark.parametrize(
    "version",
    [pytest.param("2", id="another version", marks=pytest.mark.slow), pytest.param("1", id="another source")],
)
def test_workers_of_other_code_compute_nothing(
    old_workers: str,
    tmp_path: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    version: str,
) -> None:
    file = tmp_path / "code/measured_elsewhere.py"
    with choose(old_workers)._connect() as client:
        client.run(_load)
        client.run(digest_of, ("measured_elsewhere", "pipeline"))
    before = file.stat().st_mtime
    file.write_text(STAGE.format(version=version, value=2.0))
    os.utime(file, (before + 2, before + 2))  # compiled files know sources by their second and size
    monkeypatch.setattr(sources, "_digests", {})
    import measured_elsewhere

    assert measured_elsewhere.number.stage.version == version
    outcome = computed(store, old_workers)
    assert outcome.exit_status == 2
    assert outcome.stopped == "other code on a worker"
    assert "sources of measured_elsewhere, pipeline: " in outcome.failures[0].error
    assert [failure.node for failure in outcome.failures] == ["workers"]
    assert [event.kind for event in read_events(store, outcome.run)].count("started") == 0
    assert not store.keys("number")
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "edited", ["pipeline/planning/key.py", pytest.param("toy_stages.py", marks=pytest.mark.slow)]
)
def test_an_edit_during_a_run_ends_it_where_it_may_alter_a_result(tmp_path: Path, edited: str) -> None:
    """Drivers and pages may be edited: workers that are replaced then go on. Dask shows no traceback."""
    code = tmp_path / "code"
    shutil.copytree(HERE.parents[1] / "pipeline", code / "pipeline")
    for name in ("toy_stages.py", "toy_driver.py"):
        shutil.copy(HERE / name, code)
    campaign = Campaign(tmp_path, sleep=0.3, here=code)
    driver = campaign.start("configs=abcdefgh", "workers=1")
    campaign.wait_for_executions(2, driver)
    for name in ("running/session.py", "reading/dashboard/theme.py", "reading/report.py", "transfer/push.py"):
        with (code / "pipeline" / name).open("a") as file:
            file.write("COLOUR = 'red'\n")
    os.kill(campaign.worker_pids()[0], signal.SIGKILL)
    while len(campaign.worker_pids()) < 2:
        campaign.wait_for_executions(len(toys.executions(campaign.log)) + 1, driver)
    with (code / edited).open("a") as file:
        file.write("FACTOR = 2\n")
    os.kill(next(pid for pid in campaign.worker_pids() if psutil.pid_exists(pid)), signal.SIGKILL)
    out, err = driver.communicate(timeout=60)
    assert driver.returncode == 2, (out, err)
    assert err == ""
    assert "stopped by other code on a worker" in out
    assert out.count("failed: ") == 1 and "do not edit it during a run" in out


def test_the_digest_is_of_the_layers_that_a_worker_stands_on_and_of_stages() -> None:
    names = {name.partition("/")[0] for name, _ in sources._files("pipeline")}
    assert names == {"declare", "planning", "store", "worker"}

    from stages.loops.correlator import ensemble_average

    assert sources_of([ensemble_average]).names == ("pipeline", "stages")


MODULES = """
import sys
from typing import Annotated, NamedTuple
import numpy as np
from pipeline import At, Dims, stage

class Number(NamedTuple):
    value: Annotated[np.ndarray, Dims("n")]

@stage(version="1", over=("config",))
def modules(*, at: At) -> Number:
    with open("modules.txt", "w") as file:
        file.write(" ".join(name for name in sys.modules if name.startswith("pipeline.")))
    return Number(np.zeros(1))
"""
RUN = """
if __name__ == "__main__":
    from pipeline import Place, Store, Workflow, plan, run
    from loaded_modules import modules

    w, store = Workflow("w"), Store("store")
    w.add(modules, place=Place(over={"config": ["a"]}))
    raise SystemExit(run(plan(w, store), store).exit_status)
"""


@pytest.mark.house
def test_no_worker_imports_what_the_digest_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "loaded_modules.py").write_text(MODULES)
    (tmp_path / "script.py").write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(tmp_path)])}
    command = [sys.executable, "script.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
    layers = {name.split(".")[1] for name in (tmp_path / "modules.txt").read_text().split()}
    assert {"worker"} < layers <= set(sources.LAYERS["pipeline"])


@pytest.mark.house
def test_workers_and_certificates_know_the_same_code_and_nothing_that_only_shows_or_drives(tmp_path):
    for name in ("pipeline", "stages", "workflows"):
        shutil.copytree(HERE.parents[1] / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    ask = (
        "from pipeline.worker.certificate import subject\n"
        "from pipeline.worker.sources import sources_of\n"
        "from stages.loops.correlator import ensemble_average\n"
        "print(subject('cpu').code, sources_of([ensemble_average]).digest)"
    )

    def digests() -> str:
        said = subprocess.run(
            [sys.executable, "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        )
        certified, compared = said.stdout.split()
        assert certified == compared
        return certified

    def digests_after_an_edit_of(files: tuple[str, ...]) -> str:
        for file in files:
            with (tmp_path / file).open("a") as source:
                source.write("\nCOLOUR = 'red'\n")
        return digests()

    first = digests()
    showing = (
        "pipeline/reading/dashboard/theme.py",
        "pipeline/reading/report.py",
        "pipeline/transfer/push.py",
    )
    driving = (
        "pipeline/running/driver.py",
        "pipeline/running/clusters/local.py",
        "workflows/commands/run.py",
    )
    assert digests_after_an_edit_of((*showing, *driving)) == first
    seen = {first}
    for file in ("pipeline/worker/task.py", "stages/lqcd/solvers/cg.py", "stages/loops/correlator.py"):
        seen.add(digests_after_an_edit_of((file,)))
    assert len(seen) == 4


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """packaged(name, files): a package that can be imported, of empty files; its folder."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def made(name: str, *files: str) -> Path:
        for file in ("__init__.py", *files):
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text("")
        return tmp_path / name

    return made


def afresh(monkeypatch: pytest.MonkeyPatch, *names: str) -> str:
    """The digest that a new process would take."""
    monkeypatch.setattr(sources, "_digests", {})
    return digest_of(names)


def test_the_digest_is_of_every_source_of_a_package_and_of_no_lock_of_an_editor(packaged, monkeypatch):
    package = packaged("group_code", "deep/__init__.py", "deep/kernel.cu")
    (package / ".#kernel.py").symlink_to("somebody@somewhere")
    digests = set()
    for change in ("", "// other", "__global__"):
        (package / "deep/kernel.cu").write_text(change)
        digests.add(afresh(monkeypatch, "group_code"))
    assert len(digests) == 3


def test_a_process_that_loaded_old_code_never_has_the_digest_of_the_new(packaged, monkeypatch):
    early = packaged("loaded_early") / "__init__.py"
    packaged("another_module")
    old = digest_of(("loaded_early",))
    early.write_text("number = 2")
    assert digest_of(("loaded_early",)) == old
    names = ("another_module", "loaded_early")
    assert digest_of(names) != afresh(monkeypatch, *names)
    kernel = packaged("loaded_lazily", "kernel.py") / "kernel.py"  # edited before all of it was loaded
    old = digest_of(("loaded_lazily",))
    kernel.write_text("number = 2")
    importlib.import_module("loaded_lazily.kernel")
    held = digest_of(("loaded_lazily",))
    assert held not in (old, afresh(monkeypatch, "loaded_lazily"))


def test_a_module_in_the_place_of_another_is_noticed(packaged, monkeypatch):
    """As many modules are loaded as before, and as many of the package."""
    package = packaged("loaded_in_turn", "first.py")
    importlib.import_module("loaded_in_turn.first")
    old, loaded = digest_of(("loaded_in_turn",)), len(sys.modules)
    (package / "second.py").write_text("number = 2")
    monkeypatch.delitem(sys.modules, "loaded_in_turn.first")
    importlib.import_module("loaded_in_turn.second")
    assert len(sys.modules) == loaded
    assert digest_of(("loaded_in_turn",)) != old
