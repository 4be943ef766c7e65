"""A small g-2 run from heat bath to correlator as `quarkline run` makes it, on one worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline import Store, plan, run
from pipeline.reading.account import accounts
from pipeline.running.clusters.choose import choose
from stages.base.errors import InputError
from workflows.benchmarks.speed import DTYPES, Bench, Speed
from workflows.benchmarks.staggered import normal_cost
from workflows.catalogue import load_project
from workflows.computing import checks_of

WORKFLOW = """\
workflow: g2_disconnected
ensemble:
  heatbath:
    extents: [{extents}]
    beta: 6.0
    configurations: 2
    sweeps: 5
    overrelaxation: 1
    seed: 4021
links: {{action: hisq, boundary: antiperiodic, naik_epsilon: 0.0}}
masses: {{light: 0.05, strange: 0.15}}
noise: {{kind: z2, seed: 977, vectors: 2, chunk: 2, dilution: {{displacement: 2}}}}
solves: {{solver: block_cgrq, precision: double-single, block: {block}, sloppy: {{tolerance: 1.0e-6}}}}
current: {{links: thin}}
store: store
report: report
"""

CLUSTERS = {"cpu": "local", "cuda": "cuda"}
BLOCK = 16


def speeds(bench: Bench) -> Iterator[Speed]:
    """The run as a whole, with the energy of its stages on GPUs, and the part of it that solves took.

    Raises InputError if it fails.
    """
    cluster = choose(CLUSTERS[bench.machine.backend], workers=1)
    with TemporaryDirectory(prefix="quarkline-bench-") as folder:
        file, store = Path(folder) / "bench.yaml", Store(Path(folder) / "store")
        extents = ", ".join(map(str, bench.run_lattice.extents))
        file.write_text(WORKFLOW.format(extents=extents, block=BLOCK))
        project = load_project(file)
        planned = plan(project.workflow, store, backend=cluster.backend)
        outcome = run(planned, store, cluster=cluster, checks=checks_of())
        if outcome.exit_status:
            raise InputError(f"the end-to-end run failed:\n{outcome.table()}")
        nodes = accounts(store, project.workflow.name)
    statistics = [record.statistics for node in nodes for record in node.records]
    solves = [part for part in statistics if "solve_seconds" in part]
    drawn = [node.joules for node in nodes if node.joules is not None]
    yield _line(bench, "g-2 run", outcome.seconds, sum(drawn) if drawn else None, solves)
    yield _line(bench, "its solves", sum(part["solve_seconds"] for part in solves), None, solves)


def _line(
    bench: Bench, kernel: str, seconds: float, joules: float | None, statistics: Sequence[Mapping[str, Any]]
) -> Speed:
    """Time and arithmetic per right-hand side solved; the operator's cost counts, in single precision."""
    rhs = sum(part["rhs"] for part in statistics)
    applications = sum(BLOCK * sum(part["iterations"]) for part in statistics) / rhs
    cost = applications * normal_cost(BLOCK, DTYPES["single"])
    lattice, precision = bench.run_lattice, "double-single"
    names = {"family": "end-to-end", "kernel": kernel, "precision": precision, "unit": "run"}
    return bench.speed(seconds, joules, cost, lattice.half_volume, rhs=rhs, lattice=str(lattice), **names)
