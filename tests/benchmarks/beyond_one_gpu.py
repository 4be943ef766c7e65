"""A chunk of `g2_disconnected` on a lattice that one GPU has no room for and several have.

    python tests/benchmarks/beyond_one_gpu.py [--lattice X Y Z T] [--gpus K ...] [--vectors V] [--block N]
                                                  [--room GB]

A configuration of one sweep of the heat bath, HISQ links, diluted solves in blocks of N and loops, by the
stages of the workflow, in a process for each number K of GPUs, 2 and 1, which prints the largest residual and
the peak of memory on each GPU, or that there is no room. V noise vectors give 8 V right-hand sides for each
parity. --room leaves so many GB free on each GPU; 0: all.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from threading import Event, Thread

import cupy

from pipeline import At
from script import arguments_of
from stages.ensemble.configuration import heatbath_configuration
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.staggered_operator import hisq_operator
from stages.loops.current_loops import current_loops
from stages.lqcd.kernels.cuda.devices.group import spread_over
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise import Noise
from stages.lqcd.solvers.named import Solve

LATTICE = (48, 48, 48, 96)
BETA, SEED, MASS = 6.0, 31, 0.2
SOLVER, PRECISION, TOLERANCE = "block_cgrq", "double-single", 1e-8
STEP = 0.02
"""Seconds between two looks at the memory that is used."""


class Peaks:
    """Most bytes used on each device while `watching`, what others use of it among them."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self._ids, self._over = ids, Event()
        self.most = self._used()

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _used(self) -> list[int]:
        used = []
        for each in self._ids:
            with cupy.cuda.Device(each):
                free, total = cupy.cuda.runtime.memGetInfo()
            used.append(total - free)
        return used

    def _watch(self) -> None:
        while not self._over.wait(STEP):
            self.most = list(map(max, self.most, self._used()))


def taken(ids: tuple[int, ...], room: float) -> list[cupy.cuda.Memory]:
    """Memory of each device that leaves `room` GB free; none for 0."""
    memory = []
    for each in ids if room else ():
        with cupy.cuda.Device(each):
            free, _ = cupy.cuda.runtime.memGetInfo()
            memory.append(cupy.cuda.Memory(max(1, free - int(1e9 * room))))
    return memory


def chunk(lattice: Lattice, ids: tuple[int, ...], vectors: int, block: int, room: float) -> str:
    """Outcome of a chunk on these devices, in words."""
    ballast, peaks, began = taken(ids, room), Peaks(ids), time.perf_counter()
    at = At(config="beyond.1", noise=tuple(range(vectors)), backend="cuda")
    expected = ExpectedSolves(SOLVER, PRECISION, block)
    solve = Solve(SOLVER, TOLERANCE, PRECISION, block=block)
    outcome = "computed"
    try:
        with peaks.watching(), spread_over(lattice, ids):
            gauge = heatbath_configuration(
                at=at, extents=lattice.extents, beta=BETA, seed=SEED, sweeps=1, overrelaxation=0
            )
            dslash = hisq_operator(gauge, at=at, boundary="antiperiodic", naik_epsilon=0.0, solves=expected)
            noise = Noise(SEED, "z2", {"displacement": 2})
            loops = current_loops(dslash, at=at, mass=MASS, solve=solve, noise=noise)
            known = at.statistics
            outcome += (
                f": {known['rhs']} right-hand sides in {known['solve_seconds']:.1f} s, iterations "
                f"{known['iterations']}, largest residual {known['residual_max']:.1e}, "
                f"mean condensate {loops.condensate.mean():.6f}"
            )
    except MemoryError as error:
        outcome = f"no room: {error}"
    except Exception:
        outcome = f"FAILED\n{traceback.format_exc(limit=-8)}"
    kept = sum(each.size for each in ballast) / max(1, len(ballast)) / 1e9
    most = ", ".join(f"{used / 1e9 - kept:.1f}" for used in peaks.most)
    return f"{outcome}\n  peaks, GB: {most}; {time.perf_counter() - began:.1f} s in all"


def main() -> None:
    """Print what came of it on each number of GPUs."""
    options = {"gpus": [2, 1], "vectors": 2, "block": 16, "room": 0.0}
    arguments = arguments_of(__doc__, lattice=LATTICE, options=options)
    work = arguments.vectors, arguments.block, arguments.room
    for gpus in arguments.gpus:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            outcome = process.submit(chunk, arguments.lattice, tuple(range(gpus)), *work).result()
            print(f"{arguments.lattice}, {gpus} of the GPUs, {outcome}", flush=True)


if __name__ == "__main__":
    main()
