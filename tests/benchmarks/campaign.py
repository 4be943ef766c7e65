"""The g-2 workflow on GPUs from start to end: where the time of GPU and host goes, and the memory.

    python tests/benchmarks/campaign.py FOLDER [--workers 1 1 2] [--lattice 32 32 32 48]

Configurations are made first and kernels are compiled by a run of heavy quarks; neither is in the figures.
Batched CG narrows as right-hand sides converge and may need kernels that the heavy quarks did not: the second
of two entries in `--workers` has them all.
Then, for each number of workers, the same work with another noise. What is measured runs from the start of
the first chunk of loops to the end of the last one: configurations read, links made, solves, contractions,
commits.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar

import numpy as np
from distributed import Client, WorkerPlugin

from gpu_activity import Activity, Recorder
from pipeline import Store, Workflow, plan, run
from pipeline.running.clusters import Demand
from pipeline.running.clusters.cuda import Cuda
from script import LARGE, PrintedTable, arguments_of
from workflows.catalogue import load_project

WORKFLOW = """\
workflow: g2_disconnected
ensemble:
  heatbath: {{extents: {extents}, beta: 6.0, configurations: 2, sweeps: {sweeps}, seed: 57,
             overrelaxation: 1}}
links: {{action: hisq, boundary: antiperiodic, naik_epsilon: 0.0}}
masses: {{light: {light}, strange: {strange}}}
noise: {{kind: z2, seed: {seed}, vectors: {vectors}, chunk: {chunk}, dilution: {{displacement: 2}}}}
solves: {{solver: {solver}, precision: double-single, block: {block}, sloppy: {{tolerance: {tolerance}}}}}
current: {{links: thin}}
store: store
report: report
"""

CALLS = {
    "chunk": ("pipeline.worker.task", "_compute_and_commit"),
    "load": ("pipeline.store.store:Store", "load"),
    "commit": ("pipeline.store.store:Store", "commit"),
    "links": ("stages.lqcd.gauge.hisq", "hisq_links"),
    "noise": ("stages.loops.current_loops", "noise_vectors"),
    "dilution": ("stages.lqcd.estimators.stochastic", "dilute"),
    "contraction": ("stages.lqcd.estimators.trace:LoopTrace", "contract"),
    "solve": ("stages.lqcd.solvers.krylov:KrylovSolver", "solve"),
}
"""Phase of the host: where its function is, and the name."""

Call = tuple[str, float, float]
"""Phase, begin and end in seconds since 1970."""


class Profile(WorkerPlugin):
    """Records on a worker what its GPU does, and the calls of a few functions."""

    name = "profile"

    def setup(self, worker: Any) -> None:
        self.calls: list[Call] = []
        self.recorder = Recorder()
        for phase, (owner, name) in CALLS.items():
            place = resolve_name(owner)
            setattr(place, name, self._timed(phase, getattr(place, name)))

    def _timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            begin = time.time()
            try:
                return function(*arguments, **options)
            finally:
                self.calls.append((phase, begin, time.time()))

        return timed


def collect(dask_worker: Any) -> tuple[Activity, list[Call]]:
    profile = dask_worker.plugins["profile"]
    return profile.recorder.finish(), profile.calls


class ProfiledCuda(Cuda):
    """The cuda cluster with a profile of each worker."""

    profiles: ClassVar[list[tuple[Activity, list[Call]]]] = []

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Client]:
        with super().open(demand) as client:
            client.register_plugin(Profile())
            yield client
            self.profiles[:] = client.run(collect).values()


def main() -> None:
    """Run what the arguments describe and print its figures."""
    noise = {"vectors": 8, "chunk": 4, "block": 16, "solver": "block_cgrq", "tolerance": 1e-8, "sweeps": 5}
    options = {"workers": [1], "light": 0.01, "strange": 0.05, **noise}
    arguments = arguments_of(__doc__, "folder", lattice=LARGE, options=options)
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder / "store")
    heavy = {"light": 2.0, "strange": 3.0, "vectors": arguments.chunk}
    finish(workflow_of(arguments, seed=1, **heavy), store, Cuda(max(arguments.workers)))
    for seed, workers in enumerate(arguments.workers, start=100):
        measure(workflow_of(arguments, seed=seed), store, ProfiledCuda(workers))


def workflow_of(arguments: argparse.Namespace, **changed: Any) -> Workflow:
    """The campaign that the arguments describe, but for what is changed."""
    path = Path(arguments.folder, f"seed-{changed['seed']}.yaml")
    extents = list(arguments.lattice.extents)
    path.write_text(WORKFLOW.format(**{**vars(arguments), "extents": extents, **changed}))
    return load_project(path).workflow


def finish(workflow: Workflow, store: Store, cluster: Cuda) -> None:
    outcome = run(plan(workflow, store, backend="cuda"), store, cluster=cluster)
    if outcome.exit_status:
        raise SystemExit(outcome.table())


def measure(workflow: Workflow, store: Store, cluster: ProfiledCuda) -> None:
    """Run and print tables of each worker's time, then what the records say of memory, energy and solves."""
    missing = plan(workflow, store, backend="cuda").missing
    finish(workflow, store, cluster)
    keys = [chunk.key for chunk in missing if chunk.node.stage.name == "current_loops"]
    records = [store.record("current_loops", key) for key in keys]
    chunks = [chunk for _, calls in cluster.profiles for chunk in chunks_with_solves(calls)]
    begin, end = min(chunk[1] for chunk in chunks), max(chunk[2] for chunk in chunks)
    for activity, calls in cluster.profiles:
        show(activity, calls, begin, end)
    solved = [record["statistics"] for record in records]
    rhs = sum(part["rhs"] for part in solved)
    memory = max((record.get("device_bytes") or 0 for record in records), default=0) / 1e9
    joules = sum(record["joules"] or 0 for record in records)
    print("\niterations:", [part["iterations"] for part in solved])
    print(f"{len(cluster.profiles)} workers, {end - begin:.2f} s: {rhs / (end - begin):.3f} rhs a second")
    print(f"device memory, largest of a chunk: {memory:.3f} GB; joules per rhs: {joules / rhs:.1f}")


def chunks_with_solves(calls: list[Call]) -> list[Call]:
    """The chunks that solve: those before and after are averages on the host."""
    solves = [call for call in calls if call[0] == "solve"]
    chunks = [call for call in calls if call[0] == "chunk"]
    return [c for c in chunks if any(c[1] <= s[1] and s[2] <= c[2] for s in solves)]


def show(activity: Activity, calls: list[Call], begin: float, end: float) -> None:
    """Seconds between two times in which the GPU is busy and idle, by phase; kernels of the solves."""
    times, phases = timeline(calls)
    edges = np.array([begin, *times[(times > begin) & (times < end)], end])
    names = [phases[k] for k in np.searchsorted(times, edges[:-1], side="right") - 1]
    busy: dict[str, float] = defaultdict(float)
    wall: dict[str, float] = defaultdict(float)
    for name, seconds, length in zip(
        names, np.diff(busy_until(activity, edges)), np.diff(edges), strict=True
    ):
        busy[name] += seconds
        wall[name] += length
    total, whole = sum(busy.values()), end - begin
    print(f"\nGPU busy {total:.2f} s, idle {100 * (1 - total / whole):.2f} %; ", end="")
    print(f"of busy in solves {100 * busy['solve'] / total:.2f} %")
    table = PrintedTable("phase", "busy s", "%", "idle s", "%")
    for name in sorted(wall, key=lambda name: -wall[name]):
        idle = wall[name] - busy[name]
        table.add(name or "(none)", busy[name], 100 * busy[name] / whole, idle, 100 * idle / whole)
    solving = np.array([phase == "solve" for phase in phases])
    chosen = solving[np.searchsorted(times, activity.start, side="right") - 1]
    chosen &= (activity.start >= begin) & (activity.end <= end)
    numbers, lengths = activity.number[chosen], (activity.end - activity.start)[chosen]
    counts = np.bincount(numbers, minlength=len(activity.names))
    seconds = np.bincount(numbers, lengths, len(activity.names))
    table = PrintedTable("kernel in solves", "s", "calls", "us each")
    for n in np.argsort(-seconds)[:20]:
        if counts[n]:
            table.add(activity.names[n][:60], seconds[n], counts[n], 1e6 * seconds[n] / counts[n])


def busy_until(activity: Activity, times: np.ndarray) -> np.ndarray:
    """Seconds in which the GPU was busy before each time; what runs at once counts once."""
    ends = np.maximum.accumulate(activity.end)
    starts = np.maximum(activity.start, np.concatenate([activity.start[:1], ends[:-1]]))
    passed = np.concatenate([[0.0], np.cumsum(ends - starts)])
    moments = np.stack([starts, ends], axis=-1).ravel()
    return np.interp(times, moments, np.stack([passed[:-1], passed[1:]], axis=-1).ravel())


def timeline(calls: list[Call]) -> tuple[np.ndarray, list[str]]:
    """Times at which the innermost phase changes, and the phase from each of them on; '' is none."""
    edges = sorted(
        [(begin, 1, -end, phase) for phase, begin, end in calls]
        + [(end, 0, -begin, phase) for phase, begin, end in calls]
    )
    times, names, stack = [0.0], [""], []
    for moment, opens, _, phase in edges:
        if opens:
            stack.append(phase)
        else:
            stack.remove(phase)
        times.append(moment)
        names.append(stack[-1] if stack else "")
    return np.array(times), names


if __name__ == "__main__":
    main()
