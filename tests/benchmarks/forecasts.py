"""Forecasts against runs: each shipped workflow is run at one size, forecast at others, and run there.

    python tests/benchmarks/forecasts.py FOLDER [--cluster cuda] [--workflows g2_disconnected mesons]

The files that `quarkline init` gives are made smaller: few configurations with few sweeps. One size is run,
and its records alone are learned from. Each workflow begins with empty caches of kernels, so that no kernel
of a size that is forecast has been compiled before. Columns are measured / forecast: wall time of the run,
seconds of its work, the largest memory of a worker (on the GPU with `--cluster cuda`), bytes and files in
the store, joules. With --cpu-time seconds are CPU seconds, of records and forecasts, and wall time is left
out: for machines that others use, too.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import Outcome, Plan, Store, plan, run
from pipeline.reading.forecast.forecast import RunCost, Setting, forecast, run_overheads
from pipeline.reading.forecast.model import Model
from pipeline.reading.forecast.samples import samples
from pipeline.reading.status import energies
from pipeline.running.clusters import Cluster
from pipeline.running.clusters.choose import choose
from pipeline.running.event_log import runs, state_of
from script import PrintedTable
from workflows.catalogue import load_project
from workflows.computing import checks_of
from workflows.parameter_file import read_parameter_file
from workflows.starters import OWN_FILES

WORKFLOWS = ("g2_disconnected", "mesons", "laph_mesons", "hisq_mesons")
SIZES = {
    "local": ("8x8x8x8", "8x8x8x16", "12x12x12x16", "4x4x4x8"),
    "cuda": ("16x16x16x16", "16x16x16x32", "24x24x24x32", "8x8x8x16"),
}
"""The first is learned from."""


@dataclass(frozen=True)
class Case:
    """A workflow at a size."""

    workflow: str
    size: str
    folder: Path

    def plan(self, backend: str) -> tuple[Plan, Store]:
        """The plan of a small campaign with an empty store."""
        values: dict[str, Any] = read_parameter_file(OWN_FILES / f"{self.workflow}.yaml").values
        extents = [int(number) for number in self.size.split("x")]
        values["ensemble"]["heatbath"].update(extents=extents, configurations=2, sweeps=20)
        if len(values.get("sources", {}).get("times", ())) > 1:
            values["sources"]["times"] = [0, extents[3] // 2]
        name = f"{self.workflow}-{self.size}"
        values.update(store=str(self.folder / f"{name}-store"), report=str(self.folder / f"{name}-report"))
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(values))
        project = load_project(file)
        store = Store(project.store)
        return plan(project.workflow, store, backend=backend), store


class OnCpuClock(Store):
    """A store whose records tell CPU seconds, for machines that others use, too."""

    def record(self, stage: str, key: str) -> dict[str, Any]:
        """The record with its seconds as far as its process computed in them."""
        record = super().record(stage, key)
        share = record["cpu_seconds"] / record["seconds"]
        for content, name in (
            (record, "seconds"),
            (record, "loading_seconds"),
            (record["checks"], "seconds"),
        ):
            content[name] *= share
        for part in record["parts"]:
            part["seconds"] *= share
        for kernels in (record["worker"]["kernels"], *(part["kernels"] for part in record["parts"])):
            kernels.update({kind: [n, share * seconds, b] for kind, (n, seconds, b) in kernels.items()})
        return record


CLOCKS = {"seconds": Store, "cpu_seconds": OnCpuClock}


def measured(store: Store, outcome: Outcome, clock: str) -> dict[str, float | None]:
    """Measured seconds, bytes, files and joules of a run."""
    chunks = samples([CLOCKS[clock](store.path)])
    joules = energies(state_of(store, each) for each in runs(store))
    drawn = [each.joules for each in joules if each.joules is not None]
    on_device = [each.device_bytes for each in chunks if each.device_bytes]
    return {
        "wall": outcome.seconds if clock == "seconds" else None,
        "work": sum(chunk.seconds for chunk in chunks),
        "memory": max(on_device or [chunk.host_bytes or 0 for chunk in chunks]),
        "bytes": sum(chunk.stored for chunk in chunks),
        "files": sum(chunk.files for chunk in chunks),
        "joules": sum(drawn) if drawn else None,
    }


def expected(told: RunCost) -> dict[str, float | None]:
    """Forecast of the same."""
    return {
        "wall": told.wall_seconds.value,
        "work": told.work_seconds.value,
        "memory": (told.device_memory or told.memory).value,
        "bytes": told.stored.value,
        "files": told.files,
        "joules": told.joules.value if told.joules else None,
    }


def rows(
    workflow: str, sizes: Sequence[str], cluster: Cluster, workers: int, folder: Path, clock: str
) -> Iterator[list[str]]:
    """One row a size that was forecast: measured / forecast."""
    learned, *targets = sizes
    planned, store = Case(workflow, learned, folder).plan(cluster.backend)
    run(planned, store, cluster=cluster, checks=checks_of())
    model = Model(samples([CLOCKS[clock](store.path)]))
    machines = {machine.backend: machine for machine in reversed(model.machines())}
    for size in targets:
        planned, target = Case(workflow, size, folder / "forecast").plan(cluster.backend)
        per_node = cluster.devices.workers if cluster.devices else workers
        setting, around = Setting(workers, machines, per_node), run_overheads([store], cluster.backend)
        told = expected(forecast(planned, model, setting, around).total)
        outcome = run(planned, target, cluster=cluster, checks=checks_of())
        found = measured(target, outcome, clock)
        yield [workflow, learned, size, *(_ratio(found[name], told[name]) for name in told)]


def _ratio(found: float | None, told: float | None) -> str:
    return f"{found / told:.2f} of {told:.4g}" if found is not None and told else "-"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cluster", choices=tuple(SIZES), default="local")
    parser.add_argument("--workflows", nargs="+", choices=WORKFLOWS, default=WORKFLOWS)
    parser.add_argument("--sizes", nargs="+", help="learned from, then forecast; such as 8x8x8x16")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true")
    given = parser.parse_args()
    (given.folder / "forecast").mkdir(parents=True, exist_ok=True)
    cluster = choose(given.cluster, workers=given.workers)
    table = PrintedTable(
        "workflow", "learned from", "size", "wall", "work", "memory", "bytes", "files", "joules"
    )
    clock = "cpu_seconds" if given.cpu_time else "seconds"
    sizes = given.sizes or SIZES[given.cluster]
    for workflow in given.workflows:
        for library in ("CUPY", "NUMBA"):  # what workers compile
            os.environ[f"{library}_CACHE_DIR"] = str(given.folder.resolve() / f"{workflow}-kernels")
        for row in rows(workflow, sizes, cluster, given.workers, given.folder, clock):
            table.add(*row)


if __name__ == "__main__":
    main()
