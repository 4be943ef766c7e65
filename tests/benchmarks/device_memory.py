"""Memory of a GPU by the plan against the mark of CuPy's pool, for chunks of parameter files of all kinds.

    python tests/benchmarks/device_memory.py [--cases NAME ...] [--processes 8]

A case is a shipped file with some keys changed, planned as any other, on links of two sweeps. Its chunks are
computed as by a worker, each in a pool that was empty: what stays for a chunk, as operator, vectors and
hierarchy, is made or loaded in it. Projected is what the plan has for the task and for what stays for it.
Cases run side by side in processes of their own; `large` is `g2_disconnected` on 48^3 x 64, N = 16. With
`QUARKLINE_GPUS_PER_WORKER=2` in the environment each has its lattice on two GPUs, and bytes are of one.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from memory_cases import BEYOND, CASES, measured
from script import PrintedTable, arguments_of
from stages.lqcd.lattice.geometry import Lattice

CORES = 2
"""Of a process."""


def on_few_cores() -> None:
    """Keep this process, and those who compile for it, to a few cores: its neighbours compile, too."""
    cores = sorted(os.sched_getaffinity(0))
    first = CORES * os.getpid() % len(cores)
    os.sched_setaffinity(0, (cores + cores)[first : first + CORES])


def main() -> None:
    """Print the table, a row for each kind of chunk."""
    default = [name for name in CASES if name != BEYOND]
    arguments = arguments_of(__doc__, options={"cases": default, "processes": 8})
    table = PrintedTable("case", "lattice", "node", "projected, MB", "pool, MB", "pool / projected", "s")
    began = time.perf_counter()
    os.environ.setdefault("NUMBA_NUM_THREADS", str(CORES))
    with ProcessPoolExecutor(arguments.processes, get_context("spawn"), on_few_cores) as processes:
        runs = {processes.submit(measured, name): name for name in arguments.cases}
        for run in as_completed(runs):
            name, lattice = runs[run], str(Lattice(CASES[runs[run]].extents))
            if error := run.exception():
                print(f"{name}, {lattice}: {error}", file=sys.stderr)
                continue
            for node, projected, mark in run.result():
                seconds = time.perf_counter() - began
                table.add(name, lattice, node, projected / 1e6, mark / 1e6, mark / projected, seconds)


if __name__ == "__main__":
    main()
