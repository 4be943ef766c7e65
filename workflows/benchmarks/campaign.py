"""The g-2 workflow on GPUs from start to end: where the time of GPU and host goes, and the memory.

python -m workflows.benchmarks.campaign FOLDER [--workers 1 1 2] [--extents 32 32 32 48] [--json FILE]

Configurations are made first and kernels are compiled by a run of heavy quarks; neither is in the figures.
Batched CG narrows as right-hand sides converge and may need kernels that the heavy quarks did not: the second
of two entries in `--workers` has them all.
Then, for each number of workers, the same work with another noise. What is measured runs from the start of
the first chunk of loops to the end of the last one: configurations read, links made, solves, contractions,
commits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from distributed import Client, WorkerPlugin

from pipeline import Store, Workflow, explain, plan, run
from pipeline.declare.text import text_table
from pipeline.running.clusters import Demand
from pipeline.running.clusters.cuda import Cuda
from workflows.benchmarks.gpu_activity import Activity, Recorder
from workflows.benchmarks.phases import Phases, timeline
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


class Profile(WorkerPlugin):
    """Records on a worker what its GPU and its host do."""

    name = "profile"

    def setup(self, worker: Any) -> None:
        self.phases, self.recorder = Phases(), Recorder()
        self.phases.watch()

    def result(self) -> tuple[Activity, list[tuple[str, float, float]]]:
        return self.recorder.finish(), self.phases.calls


def collect(dask_worker: Any) -> Any:
    return dask_worker.plugins["profile"].result()


class ProfiledCuda(Cuda):
    """The cuda cluster with a profile of each worker."""

    profiles: ClassVar[list[tuple[Activity, list[Any]]]] = []

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Client]:
        with super().open(demand) as client:
            client.register_plugin(Profile())
            yield client
            self.profiles[:] = client.run(collect).values()


def main() -> None:
    arguments = parsed()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    store = Store(arguments.folder / "store")
    heavy = workflow_of(arguments, seed=1, light=2.0, strange=3.0, vectors=arguments.chunk)
    took("configurations, heavy quarks", lambda: finish(heavy, store, Cuda(max(arguments.workers))))
    results = [
        measure(arguments, store, workers, seed) for seed, workers in enumerate(arguments.workers, start=100)
    ]
    for result in results:
        print(
            f"{result['workers']} workers: {result['rhs'] / result['seconds']:.3f} right-hand sides a second"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--extents", type=int, nargs=4, default=[32, 32, 32, 48])
    parser.add_argument("--vectors", type=int, default=8)
    parser.add_argument("--chunk", type=int, default=4)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--solver", default="block_cgrq")
    parser.add_argument("--light", type=float, default=0.01)
    parser.add_argument("--strange", type=float, default=0.05)
    parser.add_argument("--tolerance", type=float, default=1e-8)
    parser.add_argument("--sweeps", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def workflow_of(arguments: argparse.Namespace, **changed: Any) -> Workflow:
    """The campaign that the arguments describe, but for what is changed."""
    path = arguments.folder / f"seed-{changed['seed']}.yaml"
    path.write_text(WORKFLOW.format(**{**vars(arguments), **changed}))
    return load_project(path).workflow


def finish(workflow: Workflow, store: Store, cluster: Cuda) -> None:
    outcome = run(plan(workflow, store, backend="cuda"), store, cluster=cluster)
    if outcome.exit_status:
        raise SystemExit(outcome.table())


def took(what: str, work: Any) -> None:
    began = time.time()
    work()
    print(f"{what}: {time.time() - began:.1f} s", flush=True)


def measure(arguments: argparse.Namespace, store: Store, workers: int, seed: int) -> dict[str, Any]:
    """Runs and prints; the figures for a file."""
    workflow = workflow_of(arguments, seed=seed)
    cluster = ProfiledCuda(workers)
    planned = plan(workflow, store, backend="cuda")
    print(explain(planned).splitlines()[-1])
    took(f"{workers} workers, cluster's start and end included", lambda: finish(workflow, store, cluster))
    records = [
        store.record("current_loops", chunk.key)
        for chunk in planned.missing
        if chunk.node.stage.name == "current_loops"
    ]
    profiles = cluster.profiles
    begin = min(calls[0][1] for _, calls in map(loops_only, profiles))
    end = max(calls[-1][2] for _, calls in map(loops_only, profiles))
    figures = [figures_of(activity, calls, begin, end) for activity, calls in profiles]
    for figure in figures:
        show(figure, end - begin)
    solved = [record["statistics"] for record in records]
    print("iterations:", [part["iterations"] for part in solved])
    memory = [record.get("device_bytes") for record in records]
    joules = [record["joules"] for record in records]
    print(
        f"device memory, largest of a chunk: {max(filter(None, memory), default=0) / 1e9:.3f} GB; "
        f"joules: {sum(filter(None, joules)):.0f}"
    )
    rhs = sum(part["rhs"] for part in solved)
    return {"workers": workers, "seconds": end - begin, "rhs": rhs, "gpus": figures, "memory": memory}


def loops_only(profile: tuple[Activity, list[Any]]) -> tuple[Activity, list[Any]]:
    """The chunks that solve: those before and after are averages on the host."""
    activity, calls = profile
    solves = [call for call in calls if call[0] == "solve"]
    chunks = [call for call in calls if call[0] == "chunk"]
    chunks = [c for c in chunks if any(c[1] <= s[1] and s[2] <= c[2] for s in solves)]
    return activity, sorted(chunks, key=lambda call: call[1])


def figures_of(activity: Activity, calls: Sequence[Any], begin: float, end: float) -> dict[str, Any]:
    """Seconds of the host, of the GPU busy and of the GPU idle by phase; of kernels by phase and name."""
    times, phases = timeline(list(calls))
    inside = (activity.end > begin) & (activity.start < end)
    start, stop = (np.clip(a[inside], begin, end) for a in (activity.start, activity.end))
    number = activity.number[inside]
    phase_of = np.searchsorted(times, start, side="right") - 1
    labels = sorted(set(phases))
    code = np.array([labels.index(phase) for phase in phases])
    busy_until = np.maximum.accumulate(stop)
    fresh = np.maximum(stop - np.maximum(start, np.concatenate([[begin], busy_until[:-1]])), 0)
    busy = np.bincount(code[phase_of], fresh, len(labels))
    gaps = np.stack([np.concatenate([[begin], busy_until]), np.concatenate([start, [end]])])
    idle = np.zeros(len(labels))
    for first, last in gaps[:, gaps[1] > gaps[0]].T:
        cuts = np.concatenate([[first], times[(times > first) & (times < last)], [last]])
        np.add.at(idle, code[np.searchsorted(times, cuts[:-1], side="right") - 1], np.diff(cuts))
    kernels: dict[str, dict[str, list[float]]] = {}
    for label in range(len(labels)):
        chosen = code[phase_of] == label
        seconds = np.bincount(number[chosen], (stop - start)[chosen], len(activity.names))
        counts = np.bincount(number[chosen], minlength=len(activity.names))
        entries: dict[str, list[float]] = {}
        for n in np.argsort(-seconds)[:20]:
            entry = entries.setdefault(activity.names[n][:60], [0.0, 0])
            entry[0], entry[1] = entry[0] + float(seconds[n]), entry[1] + int(counts[n])
        kernels[labels[label]] = {name: entry for name, entry in entries.items() if entry[1]}
    return {
        "busy": dict(zip(labels, busy.tolist(), strict=True)),
        "idle": dict(zip(labels, idle.tolist(), strict=True)),
        "kernels": kernels,
    }


def show(figure: dict[str, Any], wall: float) -> None:
    busy, idle = figure["busy"], figure["idle"]
    total = sum(busy.values())
    print(
        f"wall {wall:.2f} s, GPU busy {total:.2f} s, idle {100 * sum(idle.values()) / wall:.2f} %; "
        f"of busy in solves {100 * busy.get('solve', 0) / total:.2f} %"
    )
    rows = [
        [
            phase or "(none)",
            f"{busy[phase]:.3f}",
            f"{100 * busy[phase] / wall:.2f}",
            f"{idle[phase]:.3f}",
            f"{100 * idle[phase] / wall:.2f}",
        ]
        for phase in sorted(busy, key=lambda phase: -busy[phase] - idle[phase])
    ]
    print("\n".join(text_table(["phase", "busy s", "%", "idle s", "%"], rows)))
    for phase in ("solve", "contraction", "links"):
        kernels = figure["kernels"].get(phase, {})
        rows = [[name, f"{s:.3f}", str(n), f"{1e6 * s / n:.1f}"] for name, (s, n) in kernels.items()]
        print("\n".join(text_table([phase, "s", "calls", "us each"], rows)))


if __name__ == "__main__":
    main()
