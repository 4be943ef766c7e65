"""Runs from scripts: a folder in place of a store, and a script without a guard gets one clear message."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import current_process
from pathlib import Path

import pytest

from pipeline import Place, Workflow, collect_garbage, open_result, plan, run, status, verify
from pipeline.running.clusters.guard import refuse_repeated_script, remedy_of_failed_start
from stages.base.errors import InputError
from stages.ensemble.configuration import heatbath_configuration

SCRIPT = """
from pipeline import Place, Workflow, plan, run
from stages.ensemble.configuration import heatbath_configuration

def main():
    workflow = Workflow("script")
    options = {"extents": (4, 4, 4, 2), "beta": 5.9, "seed": 3, "sweeps": 1, "overrelaxation": 0}
    workflow.add(heatbath_configuration, place=Place(over={"config": ["a"]}), **options)
    print("exit status", run(plan(workflow, "store"), "store").exit_status)

"""


def test_a_folder_is_a_store(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    workflow = Workflow("folders")
    options = {"extents": (4, 4, 4, 2), "beta": 5.9, "seed": 3, "sweeps": 1, "overrelaxation": 0}
    workflow.add(heatbath_configuration, place=Place(over={"config": ["a"]}), **options)
    for read in (status, verify, lambda place: collect_garbage(place, [workflow])):
        with pytest.raises(InputError, match=f"there is no store at {tmp_path}/store"):
            read("store")
    assert run(plan(workflow, "store"), Path("store"), cluster=scheduler).exit_status == 0
    assert open_result("store", "heatbath_configuration").sizes["config"] == 1
    assert verify("store").checked == 1 and status(Path("store")).store == str(tmp_path / "store")
    assert not collect_garbage("store", [workflow], dry_run=True).chunks


def test_a_worker_does_not_run_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_repeated_script()
    monkeypatch.setattr(current_process(), "_inheriting", True, raising=False)
    with pytest.raises(SystemExit):
        refuse_repeated_script()
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "script.py", raising=False)
    assert "import script.py" in remedy_of_failed_start() and "__main__" in remedy_of_failed_start()


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_a_script(tmp_path: Path, guarded: bool) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT + ('if __name__ == "__main__":\n    main()\n' if guarded else "main()\n"))
    ended = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    if guarded:
        assert ended.returncode == 0 and "exit status 0" in ended.stdout
    else:
        *_, last = ended.stderr.strip().splitlines()
        assert ended.returncode == 1 and "InputError: no worker could be started" in last
        assert f"workers import {file}" in last and '`if __name__ == "__main__":`' in last
        assert ended.stderr.count("Traceback") == 1
