"""The g-2 workflow on GPUs from start to end: where the time of GPU and host goes, and the memory.

    python tests/benchmarks/campaign.py FOLDER [--workers 1 1 2] [--lattice 32 32 32 48]

Configurations are made first and kernels are compiled by a run of heavy quarks; neither is in the figures.
Batched CG narrows as right-hand sides converge and may need kernels that the heavy quarks did not: the second
of two entries in `--workers` has them all.
Then, for each number of workers, the same work with another noise. What is measured runs from the start of
the first chunk of loops to the end of the last one: configurations read, links made, solves, contractions,
commits.

Utilisation is what nvidia-smi shows, the share of the last 1/6 to 1 s in which any kernel ran, as a mean
over readings every 0.2 s. It is left out where NVML does not tell.

J x variance is the energy per configuration for a stochastic error of 1, in J times the squared unit of
J_i(t) or C(t). Energy is that of all chunks of loops. Variances are of light - strange on one configuration
with the vectors that were run (at least 4), as `target:` takes them: of J_i(t), mean over spatial i and t;
of C(t), mean over t = 1 ... T/2; then means over configurations. For C(t) the product depends on the number
N of vectors, as pairs of them add a part that falls like 1/N^2.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from threading import Thread
from typing import Any, ClassVar

import numpy as np
from distributed import Client, WorkerPlugin

from gpu_activity import Activity, Recorder
from pipeline import At, Store, Workflow, open_result, plan, run
from pipeline.running.clusters import Demand
from pipeline.running.clusters.cuda import Cuda
from pipeline.store.provenance import buses
from pipeline.worker.energy import nvml_device
from script import LARGE, PrintedTable, arguments_of
from stages.loops.current_loops import DIFFERENCE, MASSES, CurrentLoops, flavour_loops
from stages.loops.noise_allocation import loop_noise, variance_model
from stages.lqcd.analysis.stochastic_error import LEAST_VECTORS
from workflows.catalogue import load_project
from workflows.computing import checks_of

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

Sample = tuple[float, int]
"""Seconds since 1970 and utilisation in %."""


class Profile(WorkerPlugin):
    """Records on a worker what its GPU does, and the calls of a few functions."""

    name = "profile"

    def setup(self, worker: Any) -> None:
        self.calls: list[Call] = []
        self.samples: list[Sample] = []
        self.recorder = Recorder()
        Thread(target=self._sample, daemon=True).start()
        for phase, (owner, name) in CALLS.items():
            place = resolve_name(owner)
            setattr(place, name, self._timed(phase, getattr(place, name)))

    def _sample(self) -> None:
        if device := nvml_device(buses()[0]):
            import pynvml

            with suppress(pynvml.NVMLError):
                while True:
                    self.samples.append((time.time(), pynvml.nvmlDeviceGetUtilizationRates(device).gpu))
                    time.sleep(0.2)

    def _timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            begin = time.time()
            try:
                return function(*arguments, **options)
            finally:
                self.calls.append((phase, begin, time.time()))

        return timed


def collect(dask_worker: Any) -> tuple[Activity, list[Call], list[Sample]]:
    profile = dask_worker.plugins["profile"]
    return profile.recorder.finish(), profile.calls, profile.samples


class ProfiledCuda(Cuda):
    """The cuda cluster with a profile of each worker."""

    profiles: ClassVar[list[tuple[Activity, list[Call], list[Sample]]]] = []

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
    outcome = run(plan(workflow, store, backend="cuda"), store, cluster=cluster, checks=checks_of())
    if outcome.exit_status:
        raise SystemExit(outcome.table())


def measure(workflow: Workflow, store: Store, cluster: ProfiledCuda) -> None:
    """Run and print tables of each worker's time, then what the records say of memory, energy and solves."""
    missing = plan(workflow, store, backend="cuda").missing
    finish(workflow, store, cluster)
    keys = [chunk.key for chunk in missing if chunk.node.stage.name == "current_loops"]
    records = [store.record("current_loops", key) for key in keys]
    chunks = [chunk for _, calls, _ in cluster.profiles for chunk in chunks_with_solves(calls)]
    begin, end = min(chunk[1] for chunk in chunks), max(chunk[2] for chunk in chunks)
    for activity, calls, samples in cluster.profiles:
        show(activity, calls, begin, end)
        if used := [percent for moment, percent in samples if begin <= moment <= end]:
            print(f"\nutilisation by NVML: {np.mean(used):.1f} %, {len(used)} samples")
    by_node: dict[str, float] = defaultdict(float)
    for record in records:
        by_node[record["node"]] += record["seconds"]
    checked = sum(record["checks"]["repeated"] for record in records)
    print(f"\nseconds by node: {dict(by_node)}; chunks checked by a second path: {checked}")
    solved = [record["statistics"] for record in records]
    rhs = sum(part["rhs"] for part in solved)
    memory = max((record.get("device_bytes") or 0 for record in records), default=0) / 1e9
    joules = sum(record["joules"] or 0 for record in records)
    print("iterations:", [part["iterations"] for part in solved])
    print(f"{len(cluster.profiles)} workers, {end - begin:.2f} s: {rhs / (end - begin):.3f} rhs a second")
    print(f"device memory, largest of a chunk: {memory:.3f} GB; joules per rhs: {joules / rhs:.1f}")
    show_cost(store, joules)


def show_cost(store: Store, joules: float) -> None:
    """Print the variances of light - strange in the last run, and their products with J per configuration."""
    results = [open_result(store, f"loops_{mass}") for mass in MASSES]
    at = At({dim: results[0][dim].values.tolist() for dim in ("noise", "probe")})
    if len(at["noise"]) < LEAST_VECTORS:
        return
    noises = []
    for config in results[0].config:
        each = [result.sel(config=config) for result in results]
        loops = [CurrentLoops(one.current.values, one.condensate.values) for one in each]
        noises.append(loop_noise([(at, flavour_loops(*loops, at=at))], at=at))
    window = slice(1, results[0].sizes["time"] // 2 + 1)
    for name, quantity in (("J_i(t)", "loops"), ("C(t)", "correlator")):
        variance = variance_model(noises, quantity, DIFFERENCE, window).variance([len(at["noise"])])
        print(f"variance of {name}: {variance:.4g}; J x variance: {variance * joules / len(noises):.4g}")


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
