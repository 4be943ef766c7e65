"""The shipped job on GPUs, `gpu_job.sh`: two GPUs against one, idle time, what a worker's first chunks cost.

    python tests/benchmarks/gpu_job.py FOLDER [--lattice 24 24 24 32] [--cluster cpu]

A run of heavy quarks makes the configurations and compiles the kernels. Then the same work with two other
noises, on GPUs 0 and 1: once as shipped, once with workers that do not look ahead. One GPU is taken to need
the seconds of all chunks of loops, the excess of one worker's first chunks among them; the rate of two is
that over the time from the first chunk's start to the last one's end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from pipeline import Store
from pipeline.running.event_log import read_events, runs
from pipeline.worker.events import ChunkState, EventKind
from script import PrintedTable, arguments_of
from workflows.starters import cluster_files

WORKFLOW = """\
workflow: g2_disconnected
ensemble:
  heatbath: {{extents: {extents}, beta: 6.0, configurations: 3, sweeps: 4, seed: 57, overrelaxation: 1}}
links: {{action: hisq, boundary: antiperiodic}}
masses: {{light: {light}, strange: {strange}}}
noise: {{kind: z2, seed: {seed}, vectors: {vectors}, chunk: 2, dilution: {{displacement: 2}}}}
solves:
  {{solver: block_cgrq, precision: double-single, block: 16, sloppy: {{tolerance: 1.0e-6}},
   fine: {{tolerance: 1.0e-10, vectors: 2}}}}
current: {{links: thin}}
store: store
report: report
"""

COMMANDS = {
    "quarkline": "from workflows.command import main as run",
    "dask": "from dask.cli import run_cli as run",
}
GUARDED = """#!{python}
{imports}

if __name__ == "__main__":
    raise SystemExit(run())
"""
"""A command: its module is imported anew by processes that it starts."""

LOOKS_AHEAD = "        --preload workflows.ahead \\\n"

Span = tuple[str, str, float, float]
"""Worker, node, begin and end of a chunk."""


def main() -> None:
    """Run what the arguments describe and print its figures."""
    options = {"cluster": "cuda", "light": 0.02, "strange": 0.06, "vectors": 8}
    arguments = arguments_of(__doc__, "folder", lattice=(24, 24, 24, 32), options=options)
    folder = Path(arguments.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    about = {"extents": list(arguments.lattice.extents), "vectors": arguments.vectors}
    shipped = cluster_files()["gpu_job"].read_text()
    blind = shipped.replace(LOOKS_AHEAD, "")
    table = PrintedTable("workers look ahead", "chunks", "s", "of one GPU", "idle %", "first chunks more, s")
    _run(folder, shipped, arguments.cluster, {**about, "seed": 1, "light": 2.0, "strange": 3.0, "vectors": 4})
    for seed, (label, script) in enumerate({"yes": shipped, "no": blind}.items(), start=100):
        masses = {"light": arguments.light, "strange": arguments.strange}
        spans = _run(folder, script, arguments.cluster, {**about, **masses, "seed": seed})
        table.add(label, len(spans), *_figures(spans))


def _run(folder: Path, script: str, backend: str, values: dict[str, object]) -> list[Span]:
    """One run of the job's script; the chunks of loops of it."""
    (folder / "g2.yaml").write_text(WORKFLOW.format(**values))
    (folder / "gpu_job.sh").write_text(script)
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    scripts = {n: GUARDED.format(python=sys.executable, imports=text) for n, text in COMMANDS.items()}
    for name, text in {**scripts, "python3": f'#!/bin/sh\nexec {sys.executable} "$@"\n'}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    command = ["bash", "gpu_job.sh", "g2.yaml", "--set", f"cluster.backend={backend}"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    store = Store(folder / "store")
    return list(_spans(store, runs(store)[-1]))


def _spans(store: Store, run: str) -> Iterator[Span]:
    """Chunks of loops that a run computed."""
    begun: dict[str, float] = {}
    for event in read_events(store, run):
        if event.kind == EventKind.STARTED:
            begun[event.key] = event.time
        elif event.kind == ChunkState.DONE and event.node.startswith("loops"):
            yield event.worker, event.node, begun[event.key], event.time


def _figures(spans: list[Span]) -> tuple[float, float, float, float]:
    """Seconds from first to last; rate against one GPU; idle time; seconds more of workers' first chunks."""
    wall = max(end for *_, end in spans) - min(begin for _, _, begin, _ in spans)
    usual = {node: median(e - b for _, n, b, e in spans if n == node) for _, node, _, _ in spans}
    first: dict[tuple[str, str], float] = {}
    for worker, node, begin, end in sorted(spans, key=lambda span: span[2]):
        first.setdefault((worker, node), end - begin - usual[node])
    workers = {worker for worker, *_ in spans}
    excess = sum(max(0.0, more) for more in first.values()) / len(workers)
    work = sum(end - begin for _, _, begin, end in spans)
    return wall, (work - excess * (len(workers) - 1)) / wall, 100 * (1 - work / (len(workers) * wall)), excess


if __name__ == "__main__":
    main()
