"""An eigensolve that is killed with its driver goes on from its checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_project import TINY, edit

from pipeline import Store, open_result, verify
from pipeline.running.event_log import read_events, runs

COMMAND = [sys.executable, "-c", "import sys; from workflows.command import main; sys.exit(main())"]
PATIENCE = 600.0


def driver(folder: Path, store: str) -> subprocess.Popen[str]:
    command = [*COMMAND, "run", "g2.yaml", "--workers", "1", "--store", store]
    root = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": root}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, start_new_session=True, **pipes)


def restarts(store: Store, run: str) -> list[int]:
    """Restarts that the eigensolves of a run reported."""
    found = [event for event in read_events(store, run) if event.kind == "progress"]
    return [event.more["restarts"] for event in found if event.node == "deflation_space"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_killed_eigensolve_is_resumed_by_the_same_command(tmp_path: Path) -> None:
    (tmp_path / "g2.yaml").write_text(TINY)
    edit(
        tmp_path / "g2.yaml",
        ("extents: [4, 4, 4, 4]", "extents: [4, 4, 8, 8]"),
        ("solves:", "deflation: {vectors: 64, block: 1, tolerance: 1.0e-10}\nsolves:"),
    )
    undisturbed = driver(tmp_path, "whole")
    assert undisturbed.wait(PATIENCE) == 0, undisturbed.communicate()
    killed, store = driver(tmp_path, "store"), Store(tmp_path / "store")
    deadline = time.monotonic() + PATIENCE
    while not list((tmp_path / "store" / ".checkpoints").glob("deflation_space/*/state-0000000*")):
        assert killed.poll() is None and time.monotonic() < deadline, "no checkpoint was kept"
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    assert not store.keys("deflation_space")
    again = driver(tmp_path, "store")
    output = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, output
    assert restarts(store, runs(store)[1])[0] > 1
    assert not verify(store).damaged and not store.checkpoints.exists()
    found, expected = (open_result(tmp_path / name, "spectrum").eigenvalue for name in ("store", "whole"))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert found.shape == (2, 64)
