"""A campaign of the workflow g2_disconnected on a small lattice, and what its jobs have left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from controlled_slurm import ControlledSlurm

from pipeline import Store
from pipeline.running.event_log import read_events, runs
from pipeline.store.ledger import Ledger
from pipeline.worker.events import ChunkState

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

WORKFLOW = """
workflow: g2_disconnected
ensemble:
  heatbath: {extents: [4, 4, 4, 8], beta: 6.0, configurations: 12, sweeps: 20, overrelaxation: 2, seed: 5}
links: {action: hisq, boundary: antiperiodic}
masses: {light: 0.02, strange: 0.06}
noise: {kind: z2, seed: 7, vectors: 64, chunk: 32, dilution: {displacement: 2}}
solves:
  solver: batched_cg
  precision: double
  sloppy: {tolerance: 1.0e-6}
  fine: {tolerance: 1.0e-10, vectors: 32}
current: {links: thin}
store: store
report: report
"""

SITE = """
kind: slurm
cores: 1
memory: 1GB
walltime: "00:01:00"
environment: {{PYTHONPATH: "{root}", OPENBLAS_NUM_THREADS: "1"}}
"""


class SlurmCampaign:
    """A folder with a workflow file, and commands in it."""

    def __init__(self, slurm: ControlledSlurm | None, folder: Path) -> None:
        self.slurm, self.folder, self.store = slurm, folder, Store(folder / "store")
        (folder / "g2.yaml").write_text(WORKFLOW)
        (folder / "site.yaml").write_text(SITE.format(root=ROOT))
        self._environment = {**(slurm.environment if slurm else os.environ), "PYTHONPATH": str(ROOT)}

    def quarkline(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        command = [sys.executable, str(HERE / "command.py"), *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self._environment, text=True, capture_output=True, timeout=280
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a command."""
        command = [sys.executable, str(HERE / "command.py"), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=self.folder, env=self._environment, text=True, **pipes)

    def submit(self, *options: str) -> dict[str, Any]:
        """Submit the workflow."""
        done = self.quarkline("submit", "g2.yaml", "--cluster", "site.yaml", "--json", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout))

    def ledger(self, event: str = "") -> list[dict[str, Any]]:
        """Entries of a kind."""
        return [entry for entry in Ledger(self.store).contents() if not event or entry["event"] == event]

    def digests(self) -> dict[str, dict[str, str]]:
        """Digests of all arrays of all chunks."""
        return {
            key: {name: array["digest"] for name, array in self.store.record(stage, key)["arrays"].items()}
            for stage in self.store.stages()
            for key in self.store.keys(stage)
        }

    def commits(self) -> Counter[str]:
        """How often each chunk was committed, by the logs of all runs."""
        return Counter(
            event.key
            for run in runs(self.store)
            for event in read_events(self.store, run)
            if event.kind == ChunkState.DONE
        )

    def wait_for_commits(self, number: int, patience: float = 240.0) -> None:
        """Wait until so many chunks are committed."""
        deadline = time.monotonic() + patience
        while sum(len(self.store.keys(stage)) for stage in self.store.stages()) < number:
            assert time.monotonic() < deadline, f"no {number} chunks within {patience:g} s: {self.words()}"
            time.sleep(0.3)

    def wait_for_end(self, patience: float = 280.0) -> None:
        """Wait until no job is left."""
        assert self.slurm
        deadline = time.monotonic() + patience
        while self.slurm.jobs():
            assert time.monotonic() < deadline, (
                f"jobs after {patience:g} s: {self.slurm.jobs()} {self.words()}"
            )
            time.sleep(0.5)

    def words(self) -> str:
        """What the jobs said last."""
        outputs = sorted(self.folder.glob("store/.campaigns/*/*.out"))
        return "\n".join(f"{path.name}: {path.read_text()[-600:]}" for path in outputs)

    def end(self) -> None:
        """Leave no job behind."""
        if self.slurm and (jobs := list(self.slurm.jobs())):
            self.slurm.ask("scancel", *jobs)
            self.wait_for_end(60.0)
