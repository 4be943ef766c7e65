"""Drivers in processes of their own, for tests that kill them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import toy_stages as toys

from pipeline import Store

HERE = Path(__file__).parent
PATIENCE = 60.0


class Campaign:
    """A store, and drivers in processes of their own; here: the folder of driver and stages."""

    def __init__(self, folder: Path, sleep: float = 0.1, here: Path = HERE) -> None:
        self.here = here
        self.path = folder / "store"
        self.log = folder / "executions.jsonl"
        folders = [here, HERE.parents[1], HERE, os.environ.get("PYTHONPATH", "")]
        root = os.pathsep.join(map(str, dict.fromkeys(folders)))
        self._environment = {
            **os.environ,
            toys.LOG: str(self.log),
            toys.SLEEP: str(sleep),
            "PYTHONPATH": root,
        }
        self._mark = f"QUARKLINE_TEST_MARK={folder}"
        self._environment["QUARKLINE_TEST_MARK"] = str(folder)

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(self.here / "toy_driver.py"), str(self.path), *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self._environment, text=True, start_new_session=True, **pipes)

    def processes(self) -> list[psutil.Process]:
        """Everything that drivers of this campaign started and that still lives."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("QUARKLINE_TEST_MARK") == self._environment["QUARKLINE_TEST_MARK"]:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def worker_pids(self) -> list[int]:
        return sorted({line["pid"] for line in toys.executions(self.log)})

    def digests(self) -> dict[str, dict[str, str]]:
        """Digests of all arrays of all chunks."""
        store = Store(self.path)
        return {
            key: {name: array["digest"] for name, array in store.record(stage, key)["arrays"].items()}
            for stage in store.stages()
            for key in store.keys(stage)
        }

    def wait_for_executions(self, number: int, driver: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(toys.executions(self.log)) < number:
            assert driver.poll() is None, driver.communicate()
            assert time.monotonic() < deadline, "the driver did not get to work"
            time.sleep(0.02)

    def wait_for_silence(self) -> None:
        """Nobody of the killed driver's is left."""
        deadline = time.monotonic() + PATIENCE
        while left := self.processes():
            assert time.monotonic() < deadline, f"orphans: {left}"
            time.sleep(0.1)
