"""Meson fields, with odd partners and copies to the host, beside the BLAS products that they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.solvers.space import Space
from stages.lqcd.spectroscopy.low_propagator import LowPropagator
from stages.lqcd.spectroscopy.meson_fields import meson_field_rows
from stages.lqcd.spectroscopy.vector_currents import CURRENTS, vector_currents
from workflows.benchmarks.link_construction import BETA
from workflows.benchmarks.machine import fastest, random_field
from workflows.benchmarks.speed import DTYPES, Bench, Speed, streaming

MODES, WIDTHS = {"cpu": 32, "cuda": 500}, {"cpu": 16, "cuda": 64}


def speeds(bench: Bench) -> Iterator[Speed]:
    """In double precision: the product, then the meson fields of each vector current in x, y and z."""
    machine, lattice, dtype = bench.machine, bench.lattice, DTYPES["double"]
    modes, width = MODES[machine.backend], WIDTHS[machine.backend]
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
        currents = list(vector_currents(dslash.links, CURRENTS[name]))
        seconds = fastest(machine, partial(meson_field_rows, low, currents, width=width), 2)
        cost = 2 * len(currents) * product
        yield line(seconds, None, cost, lattice.half_volume, kernel=name, unit="configuration")
