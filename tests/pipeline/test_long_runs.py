"""Long runs by `quarkline run`: past the bounds of a log, and without their terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import toy_workflow

from pipeline import Store
from pipeline.reading.status import status
from pipeline.running.event_log import TALLY_BYTES, log_of, runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent


class LongRun:
    """A workflow file of toys, and drivers that compute it."""

    def __init__(self, folder: Path, configs: int, noise: int) -> None:
        self.folder, self.store = folder, Store(folder / "store")
        self.chunks = configs * (noise + 2)
        (folder / "toys.yaml").write_text(toy_workflow.FILE.format(configs=configs, noise=noise))
        toy_workflow.install(folder)
        path = os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")])
        self._environment = {
            **os.environ,
            "PYTHONPATH": path,
            "QUARKLINE_TOY_LOG": str(folder / "toys.jsonl"),
        }

    def start(self, **options: Any) -> subprocess.Popen[str]:
        command = [Path(sys.executable).parent / "quarkline", "run", "toys.yaml", "--workers", "2"]
        self.said = open(self.folder / "said.txt", "w")  # noqa: SIM115
        pipes = {"stdout": self.said, "stderr": self.said}
        return subprocess.Popen(
            command, cwd=self.folder, env=self._environment, text=True, **{**pipes, **options}
        )

    def stored(self) -> int:
        return sum(
            len(list((self.store.path / stage).glob("*/*"))) for stage in ("field", "loops", "config_mean")
        )

    def text(self) -> str:
        return (self.folder / "said.txt").read_text()


def test_a_run_outlives_its_terminal_by_its_grace(tmp_path: Path) -> None:
    """What is begun is finished and committed; no process is left, nothing is printed to nobody."""
    run = LongRun(tmp_path, configs=2, noise=400)
    terminal, side = pty.openpty()
    driver = run.start(stdin=side, stdout=side, stderr=side, preexec_fn=partial(terminal_of, side))
    os.close(side)
    while run.stored() < 10:
        assert driver.poll() is None
        if select.select([terminal], [], [], 0.1)[0]:
            os.read(terminal, 65536)
    os.close(terminal)  # the system sends SIGHUP to the driver and its workers
    assert driver.wait(60) == 130
    found = status(run.store).last_run
    assert found and found.stopped == "SIGHUP" and not found.running
    assert found.counts == {"done": run.stored()}


def test_output_that_nobody_reads_or_that_finds_no_room_ends_no_run(tmp_path: Path) -> None:
    run = LongRun(tmp_path, configs=1, noise=2)
    with open("/dev/full", "w") as full:
        assert run.start(stdout=full, stderr=full).wait() == 0
    assert run.stored() == run.chunks


def terminal_of(side: int) -> None:
    """Be the leader of a session with this terminal."""
    os.setsid()
    fcntl.ioctl(side, termios.TIOCSCTTY, 0)


def test_a_log_beyond_a_mebibyte(tmp_path: Path) -> None:
    run = LongRun(tmp_path, configs=2, noise=800)
    assert run.start().wait() == 0, run.text()[-3000:]
    assert "Traceback" not in run.text()
    (last,) = runs(run.store)
    assert log_of(run.store, last).stat().st_size > TALLY_BYTES
    found = status(run.store).last_run
    assert found and found.counts == {"done": run.chunks}
