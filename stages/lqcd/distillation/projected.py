"""Quark lines of distillation: solutions of the Dirac equation, each block projected at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.distillation.columns import Columns
from stages.lqcd.distillation.distillation_sources import check_vectors, distillation_sources
from stages.lqcd.distillation.projection import sink_projections
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.kernels.transfer import Stored
from stages.lqcd.solvers.even_odd import Progress, solved
from stages.lqcd.solvers.solution import Solver, SolveStatistics, column_blocks


def projected_solutions(
    M: WilsonOperator,
    vectors: Stored,
    columns: Columns,
    method: Solver,
    block: int,
    device_bytes: Callable[[], int],
    progress: Progress = lambda *_: None,
) -> tuple[NDArray[np.complex128], SolveStatistics]:
    """c[t, spin, i, column] = (v_i on slice t at this spin)^dag M^-1 (source of the column), on the host.

    vectors: ``[time, parity, site, colour, eigenvector]`` anywhere; all of them are sinks. block: columns
    that are solved together; a solution lives as long as its block. device_bytes: says how much a projection
    may take (`stages.lqcd.distillation.projection`). Raises what the method raises, and InputError.
    """
    lattice, xp = M.dslash.lattice, M.xp
    check_vectors(vectors, lattice, columns)
    statistics = SolveStatistics()
    result = np.empty((lattice.time_extent, SPINS, vectors.shape[-1], len(columns)), complex)
    parts = column_blocks(len(columns), block)
    for number, part in enumerate(parts, start=1):
        sources = distillation_sources(vectors, lattice, columns, part, xp)
        x = solved(M, sources, method, statistics, part.start)
        result[..., part.start : part.stop] = as_numpy(sink_projections(vectors, x, xp, device_bytes()))
        progress(number, len(parts))
    return result, statistics
