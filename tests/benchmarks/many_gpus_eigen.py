"""Eigenvectors of a lattice on several GPUs against one: products with a basis, Laplacian, block Lanczos.

    python tests/benchmarks/many_gpus_eigen.py [--gpus K] [--per-gpu X Y Z T] [--vectors 64]

Quenched links, HISQ for the Dirac operator. Weak: K times the time slices on K GPUs; strong: one GPU's
lattice on K. An eigensolver is timed in its second run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial

import cupy
import numpy as np

from many_gpus import part
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.distillation.eigenvectors import LaplaceSolver
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.gauge.stout import SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.kernels import basis, random_numbers
from stages.lqcd.kernels.cuda.devices.group import spread_over
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import empty_field
from stages.lqcd.lattice.geometry import EVEN, Lattice

BLOCK = 16
RHO, STEPS = 0.1, 5
TOLERANCE = 1e-8

WARM = 0.2
"""Seconds of the same work that bring clocks up."""

Times = Iterator[tuple[str, float]]
"""What was timed, and its seconds."""


def products(lattice: Lattice, vectors: int) -> Times:
    """Projection on a basis of twice the vectors, combination, rotation to half of it."""
    vectors *= 2
    for dtype in (np.complex64, np.complex128):
        V, x = (filled((lattice.half_volume, 3, columns), dtype) for columns in (vectors, BLOCK))
        coefficients = cupy.asarray(np.eye(vectors, BLOCK) + 0j)
        rotation = cupy.asarray(np.eye(vectors, vectors // 2) + 0j)
        work: dict[str, Callable[[], object]] = {
            "V^H x": partial(basis.project, V, x),
            "x += V C": partial(basis.add_combination, x, V, coefficients),
            "V Q": partial(basis.rotate_in_place, V, rotation),
        }
        for name, call in work.items():
            yield f"{name} {np.dtype(dtype)}", device_seconds(call)


def laplacian(lattice: Lattice, vectors: int) -> Times:
    """Modes of the Laplacian of smeared links on all slices."""
    smeared = stout_links(quenched(lattice), lattice, RHO, STEPS, SPATIAL_DIRECTIONS)
    solve = partial(LaplaceSolver(vectors, tolerance=TOLERANCE).solve, smeared, lattice)
    solve()
    yield "Laplacian", wall_seconds(solve)


def block_lanczos(lattice: Lattice, vectors: int) -> Times:
    """Two restarts with a filter of fixed degree."""
    links = hisq_links(quenched(lattice), lattice, boundary="antiperiodic", naik_epsilon=0.0)
    B = SquaredDslash(StaggeredDslash(links), EVEN)
    method = BlockLanczos(vectors, BLOCK, TOLERANCE, 3 * vectors, degree=20, max_restarts=2)
    solve = partial(method.solve, B, on_failure="return")
    applications = solve().matvecs
    yield "block Lanczos, an application", wall_seconds(solve) / applications


def quenched(lattice: Lattice) -> Array:
    """Links of a few sweeps of heat bath, the same for every number of GPUs."""
    return thermalised(lattice, 6.0, 1, "many GPUs", 2, 1, xp=cupy)


def filled(shape: tuple[int, ...], dtype: type) -> Array:
    array = empty_field(shape, dtype, cupy)
    random_numbers.fill_random(array, 1, 0)
    return array


def device_seconds(work: Callable[[], object], calls: int = 5) -> float:
    """The shortest time of a call on the device, all devices included; their clocks are up."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < calls or time.perf_counter() - began < WARM:
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return min(times)


def wall_seconds(work: Callable[[], object]) -> float:
    """Time of one call that uses the host as well."""
    cupy.cuda.get_current_stream().synchronize()
    began = time.perf_counter()
    work()
    cupy.cuda.get_current_stream().synchronize()
    return time.perf_counter() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument(
        "--per-gpu", type=int, nargs=4, default=(32, 32, 32, 48), metavar=("X", "Y", "Z", "T")
    )
    parser.add_argument("--vectors", type=int, default=64)
    arguments = parser.parse_args()
    k, (x, y, z, t) = arguments.gpus, arguments.per_gpu
    alone, wide = Lattice((x, y, z, t)), Lattice((x, y, z, k * t))
    print(f"{alone} per GPU, {arguments.vectors} vectors\n| | GPUs | ms | efficiency |\n|---|---|---|---|")
    first: dict[str, float] = {}
    for name, lattice, gpus in (("one", alone, 1), ("weak", wide, k), ("strong", alone, k)):
        share = gpus if name == "strong" else 1
        for timed in (products, laplacian, block_lanczos):
            with part(f"{name}, {timed.__name__}"), spread_over(lattice, tuple(range(gpus))):
                for what, seconds in timed(lattice, arguments.vectors):
                    efficiency = first.setdefault(what, seconds) / (share * seconds)
                    print(f"| {name}, {what} | {gpus} | {1e3 * seconds:.4g} | {efficiency:.3f} |", flush=True)


if __name__ == "__main__":
    main()
