"""Cost of the checks against silent errors, on loops of HISQ quarks: checksums, and the second path.

Every chunk goes by the second path here; `cost` is what a run pays for checksums and a share of the chunks.
docs/notes/firewall.md has the table.

    python tests/benchmarks/firewall.py --lattice 8 8 8 16
    python tests/benchmarks/firewall.py --cluster cuda --lattice 32 32 32 48 --block 32
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

from pipeline import Place, Store, Workflow, plan, run
from pipeline.running.clusters.choose import choose
from pipeline.worker.checks import FRACTION
from script import SMALL, PrintedTable, arguments_of
from stages.ensemble.configuration import heatbath_configuration
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.staggered_operator import hisq_operator
from stages.loops.current_loops import current_loops
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise import Noise
from stages.lqcd.solvers.named import Solve
from workflows.computing import checks_of

VECTORS = 4
"""Noise vectors of a chunk, diluted to 16 right-hand sides each and parity."""
OPTIONS = {"cluster": "local", "mass": 0.02, "tolerance": 1e-10, "block": 16, "chunks": 3}


def loops(lattice: Lattice, mass: float, tolerance: float, block: int, chunks: int) -> Workflow:
    """One configuration, and chunks of loops on it."""
    workflow = Workflow("firewall")
    place = Place(over={"config": ["a"]})
    chain = {"beta": 6.0, "seed": 12, "sweeps": 10, "overrelaxation": 2}
    gauge = workflow.add(heatbath_configuration, place=place, extents=lattice.extents, **chain)
    solves = ExpectedSolves(block=block)
    operator = workflow.add(hisq_operator, gauge, boundary="antiperiodic", naik_epsilon=0.0, solves=solves)
    over = {"noise": range(VECTORS * chunks), "probe": [0]}
    workflow.add(
        current_loops,
        operator,
        place=Place(over=over, chunk={"noise": VECTORS}),
        mass=mass,
        noise=Noise(5, "z2", {"displacement": 2}),
        solve=Solve("block_cgrq", tolerance, "double-single", block=block),
    )
    return workflow


def main() -> None:
    """Measure and print."""
    wanted = arguments_of(__doc__, lattice=SMALL, options=OPTIONS)
    cluster = choose(wanted.cluster, workers=1)
    columns = ("lattice", "chunk", "s", "checksums, MB", "s", "second path, s", f"cost at {FRACTION:g}")
    table = PrintedTable(*columns)
    with TemporaryDirectory() as folder:
        store = Store(folder)
        workflow = loops(wanted.lattice, wanted.mass, wanted.tolerance, wanted.block, wanted.chunks)
        outcome = run(
            plan(workflow, store, backend=cluster.backend), store, cluster=cluster, checks=checks_of(1)
        )
        assert outcome.exit_status == 0, outcome.table()
        records = [store.record("current_loops", key) for key in store.keys("current_loops")]
        for number, record in enumerate(sorted(records, key=lambda record: record["finished"])):
            again, sums = record["statistics"]["repeated_seconds"], record["checks"]
            alone = record["seconds"] - again - sums["seconds"]
            cost = (sums["seconds"] + FRACTION * again) / alone
            megabytes = sums["bytes"] / 1e6
            table.add(wanted.lattice, number, alone, megabytes, sums["seconds"], again, f"{100 * cost:.2f} %")


if __name__ == "__main__":
    main()
