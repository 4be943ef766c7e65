"""Long runs by `quarkline run`: past the bounds of a log, killed, resumed, with an open dashboard."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest
import toy_workflow
from bokeh.client import pull_session

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


class Watch(threading.Thread):
    """Memory of a driver, and the times in which its dashboard answers, with a page that stays open."""

    def __init__(self, run: LongRun, driver: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self._run, self._driver = run, driver
        self.megabytes: list[tuple[float, float]] = []
        self.answers: list[float] = []
        self.began = time.monotonic()

    def run(self) -> None:
        link, session = None, None
        while self._driver.poll() is None:
            with suppress(psutil.Error):
                rss = psutil.Process(self._driver.pid).memory_info().rss / 2**20
                self.megabytes.append((round(time.monotonic() - self.began, 1), round(rss, 1)))
            if link is None and (found := re.search(r"dashboard: .* is in (\S+),", self._run.text())):
                link = Path(found[1]).read_text().strip()
            if link:
                with suppress(OSError):
                    asked = time.monotonic()
                    assert urlopen(link, timeout=120).status == 200
                    self.answers.append(round(time.monotonic() - asked, 3))
                    session = session or pull_session(url=link)
            time.sleep(5.0)
        if session:
            session.close()


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


def finished(run: LongRun) -> Watch:
    driver = run.start()
    watch = Watch(run, driver)
    watch.start()
    assert driver.wait() == 0, run.text()[-3000:]
    watch.join()
    return watch


def test_a_log_beyond_a_mebibyte(tmp_path: Path) -> None:
    run = LongRun(tmp_path, configs=2, noise=800)
    finished(run)
    assert "Traceback" not in run.text()
    (last,) = runs(run.store)
    assert log_of(run.store, last).stat().st_size > TALLY_BYTES
    found = status(run.store).last_run
    assert found and found.counts == {"done": run.chunks}


def test_ten_thousand_chunks_with_a_kill_a_resume_and_an_open_dashboard(tmp_path: Path) -> None:
    run = LongRun(tmp_path, configs=int(os.environ.get("QUARKLINE_TEST_CONFIGS", "40")), noise=250)
    began, driver = time.monotonic(), run.start()
    first = Watch(run, driver)
    first.start()
    while run.stored() < 0.4 * run.chunks:
        assert driver.poll() is None, run.text()[-3000:]
        time.sleep(1.0)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    first.join()
    before, killed = run.stored(), time.monotonic()
    time.sleep(2.0)
    second = finished(run)
    figures = {
        "chunks": run.chunks,
        "stored at the kill": before,
        "seconds": [round(killed - began, 1), round(time.monotonic() - killed, 1)],
        "MB": [first.megabytes[::6], second.megabytes[::6]],
        "peak MB": [max(mb for _, mb in watch.megabytes) for watch in (first, second)],
        "answers of the dashboard s": [first.answers[::6], second.answers[::6]],
        "slowest": [max(first.answers), max(second.answers)],
        "log MB": [log_of(run.store, each).stat().st_size / 2**20 for each in runs(run.store)],
    }
    print(json.dumps(figures))
    assert run.stored() == run.chunks
    executions = [json.loads(line)["stage"] for line in (tmp_path / "toys.jsonl").read_text().splitlines()]
    assert len(executions) <= run.chunks + 4, "a chunk was computed again that was stored"
    assert "Traceback" not in run.text()
