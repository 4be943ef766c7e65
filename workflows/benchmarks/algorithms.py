"""Eigenvectors, multigrid and meson fields as a whole, on a quenched configuration of a few sweeps.

The arithmetic that counts is that of the operator's applications, each with perfect reuse of its links; what
the smoothers and coarse grids of multigrid do is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import TypeVar

import numpy as np

from stages.lqcd.dirac.laplacian import SpatialHop, folded_laplacian
from stages.lqcd.dirac.staggered import NormalOperator, Packing, StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.eigen.batched_lanczos import BatchedLanczos
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.eigenpairs import Eigenpairs
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.multigrid.levels import default_levels, multigrid_of
from stages.lqcd.notebook import MULTIGRID_LEVEL
from stages.lqcd.solvers.space import Space
from stages.lqcd.spectroscopy.low_propagator import LowPropagator
from stages.lqcd.spectroscopy.meson_fields import meson_field_rows
from stages.lqcd.spectroscopy.vector_currents import CURRENTS, vector_currents
from workflows.benchmarks import staggered, wilson
from workflows.benchmarks.machine import Machine, fastest, random_field
from workflows.benchmarks.speed import DTYPES, Bench, SiteCost, Speed, streaming

BETA, SWEEPS, SEED = 6.0, 5, 31
MASS, CSW = -0.3, 1.0
VECTORS, BLOCK, TOLERANCE = 16, 8, 1e-6
SOLVED = 1e-10
REPEATS = 3
MESON_MODES = {"cpu": (32, 16), "cuda": (500, 64)}
"""Modes of meson fields, and how many are multiplied together."""

Result = TypeVar("Result")


def multigrid_speeds(bench: Bench) -> Iterator[Speed]:
    """The setup for a Wilson-clover operator, and a solve of its Schur complement for every width."""
    lattice, machine = bench.run_lattice, bench.machine
    links = wilson_links(_configuration(bench), lattice, boundary="antiperiodic", csw=CSW)
    M = WilsonOperator(WilsonDslash(links), MASS)
    method = multigrid_of([MULTIGRID_LEVEL | level for level in default_levels(lattice)], SEED)
    names = {"family": "multigrid", "precision": "double-single", "lattice": str(lattice)}
    itemsize, sites = DTYPES["single"].itemsize, lattice.half_volume
    seconds, hierarchy = _timed(machine, lambda: method.setup(M))
    cost = sum(level.vectors for level in method.levels) * wilson.schur_cost(BLOCK, itemsize)
    yield bench.speed(seconds, None, cost, sites, kernel="setup", rhs=1, unit="setup", **names)
    solver, system = hierarchy.solver(SOLVED), hierarchy.system
    for rhs in bench.widths:
        b = random_field(machine, (*system.shape, rhs), np.complex128)
        seconds, solution = _timed(machine, partial(solver.solve, system, b))
        cost = solution.iterations * wilson.schur_cost(rhs, itemsize)
        yield bench.speed(seconds, None, cost, sites, kernel="GCR", rhs=rhs, unit="solve", **names)


def eigen_speeds(bench: Bench) -> Iterator[Speed]:
    """Low modes of -D_eo D_oe by block Lanczos, and Laplace eigenvectors of all time slices together.

    Slices so small that a basis would span their space are left out.
    """
    lattice, thin = bench.run_lattice, _configuration(bench)
    names = {"family": "eigen", "precision": "double", "lattice": str(lattice), "unit": "run"}
    itemsize, sites = DTYPES["double"].itemsize, lattice.half_volume
    hisq = hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    A = NormalOperator(StaggeredDslash(hisq, packing=Packing(block=BLOCK)), staggered.MASS).massless
    L = folded_laplacian(SpatialHop(thin, lattice, np.complex128))
    block, batched = (
        BlockLanczos(VECTORS, BLOCK, TOLERANCE),
        BatchedLanczos(VECTORS, BLOCK, TOLERANCE),
    )
    runs: dict[str, tuple[Callable[[], Eigenpairs], SiteCost]] = {
        "BlockLanczos": (lambda: block.solve(A), staggered.dslash_cost(BLOCK, itemsize)),
    }
    slices = lattice.time_extent
    if batched.size(rows := int(np.prod(L.shape)) // slices) < rows:
        runs["BatchedLanczos"] = lambda: batched.solve(L, slices), _hop_cost(BLOCK, itemsize)
    for kernel, (run, dslash) in runs.items():
        seconds, pairs = _timed(bench.machine, run)
        cost = 2 * pairs.matvecs / VECTORS * dslash
        yield bench.speed(seconds, None, cost, sites, kernel=kernel, rhs=VECTORS, **names)


def meson_speeds(bench: Bench) -> Iterator[Speed]:
    """Meson fields of each vector current in x, y and z, after the product by BLAS of all modes on a slice.

    In double. They count as full products on both parities; their time is of all, copies to the host too.
    """
    machine, lattice, dtype = bench.machine, bench.lattice, DTYPES["double"]
    modes, width = MESON_MODES[machine.backend]
    line = partial(bench.speed, family="mesons", precision="double", rhs=modes)
    product, sites = streaming(24 * modes, 2, dtype), lattice.sites_per_slice
    left, right = (random_field(machine, (3 * sites, modes), dtype) for _ in range(2))
    bras = left.conj().T, machine.xp.ascontiguousarray(left.conj().T)
    seconds = min(machine.seconds(partial(machine.xp.matmul, bra, right)) for bra in bras)
    yield line(seconds, None, product, sites, kernel="product by BLAS")
    del left, right, bras
    vectors, none = machine.xp.empty((lattice.half_volume, 3, modes), dtype), np.zeros(modes)
    for first in range(0, modes, width):  # CuPy's generators count in 32 bits
        part = vectors[..., first : first + width]
        part[...] = random_field(machine, part.shape, dtype, seed=first)
    thin = thermalised(lattice, BETA, 31, "bench", sweeps=2, overrelaxation=1, xp=machine.xp)
    dslash = StaggeredDslash(hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0))
    low = LowPropagator.of(dslash, Space.of_eigenpairs(none, vectors, none))
    for name in ("local", "one_link", "conserved"):
        work = partial(meson_field_rows, low, [*vector_currents(dslash.links, CURRENTS[name])], width=width)
        seconds, cost = fastest(machine, work, 2), 2 * len(CURRENTS[name]) * product
        del work  # links of its currents
        yield line(seconds, None, cost, lattice.half_volume, kernel=name, unit="configuration")


def _configuration(bench: Bench) -> Array:
    lattice, xp = bench.run_lattice, bench.machine.xp
    return thermalised(lattice, BETA, SEED, "bench", sweeps=SWEEPS, overrelaxation=1, xp=xp)


def _hop_cost(rhs: int, itemsize: int) -> SiteCost:
    """54 numbers of spatial links, shared by the block; 6 neighbours or one; the result."""
    links, vector = 6 * 9 * itemsize / rhs, 3 * itemsize
    return SiteCost(6 * 66 + 5 * 6, links + 2 * vector, links + 7 * vector)


def _timed(machine: Machine, work: Callable[[], Result]) -> tuple[float, Result]:
    """Median of some calls, and the result of one before them, which compiles."""
    result = work()
    return median(machine.wall_seconds(work) for _ in range(REPEATS)), result
