"""What propagators and mesons need in memory and take in the store, projected from extents; bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import MULTIGRID
from stages.lqcd.spectroscopy.gammas import CHANNELS, NAMES
from workflows.shared.footprint import COMPLEX, LINK_FIELDS, MATRIX, PROCESS, RECORD, links_bytes

CLOVER = 72 * COMPLEX
"""Two Hermitian 6 x 6 matrices."""
HALF_FIELDS = 12
"""Fields on one parity alive in a solver, in double precision, per right-hand side."""

KEPT_HALF_FIELDS = 18
"""Likewise where directions are kept, and in a cycle of multigrid: 17 on a GPU, N = 8 and 16."""

KEEPING = ("gcr", MULTIGRID, "auto")
"""Solvers that do that, or may be found to."""

SETUP_FIELDS = 8
"""Blocks of near-null vectors alive while they are relaxed, those of the smoother on one parity."""


def operator_memory(lattice: Lattice, precision: str) -> int:
    """What stays of a Wilson-clover operator: links, packed links, clover term, A and its inverse."""
    share = {"double": 2, "double-single": 3}[precision]  # halves: packed in double, perhaps in single, too
    packed = (8 * MATRIX + 2 * CLOVER) * lattice.volume * share // 2
    return links_bytes(lattice) + CLOVER * lattice.volume + packed


def propagator_bytes(lattice: Lattice, columns: int) -> int:
    """A propagator with its residuals."""
    return COMPONENTS * COMPLEX * lattice.volume * columns + RECORD


def propagating_device_memory(lattice: Lattice, columns: int, block: int, solver: str) -> int:
    """Beside the operator: sources, propagators, a block in the solver, and a copy in the contraction."""
    half, alive = COMPONENTS * COMPLEX * lattice.half_volume, HALF_FIELDS
    if solver in KEEPING:
        alive = KEPT_HALF_FIELDS
    return half * (6 * columns + alive * min(block, columns))


def propagating_memory(lattice: Lattice, precision: str, columns: int, block: int, solver: str) -> int:
    """Likewise on the host, with the operator, and what making it takes for a while."""
    making = LINK_FIELDS * links_bytes(lattice)
    kept = operator_memory(lattice, precision)
    return PROCESS + max(making, kept + propagating_device_memory(lattice, columns, block, solver))


def correlators_bytes(lattice: Lattice, sources: int, momenta: int) -> int:
    """All sixteen correlators of each source."""
    return COMPLEX * len(NAMES) * momenta * lattice.time_extent * sources + RECORD


def meson_average_bytes(lattice: Lattice, samples: int, momenta: int) -> int:
    """Means, errors and samples, and what the channels have."""
    return 8 * momenta * lattice.time_extent * (len(NAMES) * (2 + samples) + 4 * len(CHANNELS)) + RECORD


def setup_bytes(lattice: Lattice, levels: Sequence[Mapping[str, Any]]) -> int:
    """Near-null vectors, and coarse operators of nine matrices a site, of all levels, in complex64."""
    total, sites, components = RECORD, lattice.volume, COMPONENTS
    for level in levels:
        total += COMPLEX // 2 * sites * components * level["vectors"]
        sites, components = sites // prod(level["aggregate"]), 2 * level["vectors"]
        total += 9 * COMPLEX // 2 * sites * components**2
    return total


def setup_device_memory(lattice: Lattice, levels: Sequence[Mapping[str, Any]]) -> int:
    """Beside the operator: the hierarchy, and the vectors of the finest level in a smoother."""
    vectors = COMPLEX // 2 * lattice.volume * COMPONENTS * levels[0]["vectors"]
    return setup_bytes(lattice, levels) + SETUP_FIELDS * vectors


def setup_memory(lattice: Lattice, precision: str, levels: Sequence[Mapping[str, Any]]) -> int:
    """Likewise on the host, with the operator."""
    return PROCESS + operator_memory(lattice, precision) + setup_device_memory(lattice, levels)
