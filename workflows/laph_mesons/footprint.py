"""What distillation needs in memory and takes in the store, projected from extents and counts; bytes."""

from __future__ import annotations

from stages.lqcd.distillation.eigenvectors import COLUMNS
from stages.lqcd.eigen.window import subspace_size
from stages.lqcd.kernels.gamma import COMPONENTS, SPINS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.gammas import NAMES
from workflows.shared.footprint import COMPLEX, LINK_FIELDS, MATRIX, PROCESS, RECORD, links_bytes
from workflows.shared.quark_footprint import operator_memory, propagating_device_memory

ITEMSIZE = {"double": COMPLEX, "single": COMPLEX // 2}
"""Of an element of the eigenvectors."""

BLOCKS = 6
"""Blocks of an eigensolver beside its basis: two of the iteration, one of a measurement, one inside the
Laplacian, and two of what norms are made of."""

FIELDS = 5
"""Fields on one parity alive while some modes are completed or measured."""


def vectors_bytes(lattice: Lattice, slices: int, vectors: int, precision: str) -> int:
    """Eigenvectors of so many slices with their values and residuals."""
    sites = 2 * lattice.sites_per_slice * slices
    return 3 * sites * vectors * ITEMSIZE[precision] + 16 * slices * vectors + RECORD


def eigensolve_device_memory(lattice: Lattice, slices: int, vectors: int, block: int, precision: str) -> int:
    """Beside the links: those of the Laplacian, and the larger of what Lanczos holds on the even sites, its
    basis, blocks and result, and of what the modes are completed and measured with.
    """
    rows = 3 * lattice.sites_per_slice
    column = rows * slices * ITEMSIZE[precision]
    packed = 6 * MATRIX * 2 * lattice.sites_per_slice * slices * ITEMSIZE[precision] // COMPLEX
    searching = subspace_size(vectors, block, rows) + BLOCKS * block + vectors
    completing = 3 * vectors + FIELDS * min(COLUMNS, vectors)
    return packed + column * max(searching, completing)


def eigensolve_memory(lattice: Lattice, slices: int, vectors: int, block: int, precision: str) -> int:
    """Likewise on the host, with the links, and what smearing them takes for a while."""
    solving = links_bytes(lattice) + eigensolve_device_memory(lattice, slices, vectors, block, precision)
    return PROCESS + max(LINK_FIELDS * links_bytes(lattice), solving)


def projections_bytes(lattice: Lattice, vectors: int, columns: int) -> int:
    """Of so many right-hand sides on all eigenvectors, and the residuals."""
    return COMPLEX * lattice.time_extent * SPINS * vectors * columns + 16 * columns + RECORD


def solving_device_memory(lattice: Lattice, vectors: int, block: int, solver: str) -> int:
    """Beside operator and eigenvectors: a block in the solver, its sources and projections."""
    projections = 2 * COMPLEX * lattice.time_extent * SPINS * vectors * block
    return propagating_device_memory(lattice, block, block, solver) + projections


def solving_memory(
    lattice: Lattice, vectors: int, block: int, solver: str, columns: int, precision: str, kept: str
) -> int:
    """Likewise on the host, with operator, eigenvectors and the result; kept: precision of eigenvectors."""
    operator = operator_memory(lattice, precision)
    basis = vectors_bytes(lattice, lattice.time_extent, vectors, kept)
    solving = operator + basis + solving_device_memory(lattice, vectors, block, solver)
    making = LINK_FIELDS * links_bytes(lattice)
    return PROCESS + max(making, solving) + 2 * projections_bytes(lattice, vectors, columns)


def elementals_bytes(lattice: Lattice, momenta: int, displacements: int, vectors: int) -> int:
    """Of all slices."""
    return COMPLEX * lattice.time_extent * momenta * displacements * vectors**2 + RECORD


def elementals_device_memory(lattice: Lattice, vectors: int, precision: str) -> int:
    """Beside links and eigenvectors: three fields like them at most, by tiles where they do not fit."""
    return 3 * vectors_bytes(lattice, lattice.time_extent, vectors, precision)


def insertions_bytes(
    lattice: Lattice, vectors: int, sources: int, separations: int, momenta: int, displacements: int
) -> int:
    """Generalised perambulators of all Dirac matrices, and the residuals of both ends."""
    lines, columns = sources * separations, SPINS * vectors
    each = COMPLEX * lattice.time_extent * len(NAMES) * momenta * displacements * columns**2
    return lines * each + 16 * columns * (sources + lines) + RECORD


def inserting_device_memory(lattice: Lattice, block: int, solver: str, momenta: int) -> int:
    """Beside operator and eigenvectors: a block in the solver, which takes more than the tiles of the
    products after it, and these products, by pairs of spins and of Dirac matrices.
    """
    products = COMPLEX * lattice.time_extent * momenta * block**2 * (2 * SPINS**2 + len(NAMES))
    return propagating_device_memory(lattice, block, block, solver) + products


def inserting_memory(
    lattice: Lattice,
    vectors: int,
    block: int,
    solver: str,
    sources: int,
    momenta: int,
    precision: str,
    kept: str,
) -> int:
    """Likewise on the host, with operator and eigenvectors, and the solutions from all sources; beside the
    result. kept: precision of eigenvectors.
    """
    solutions = COMPONENTS * COMPLEX * lattice.volume * SPINS * vectors * sources
    basis = vectors_bytes(lattice, lattice.time_extent, vectors, kept)
    working = operator_memory(lattice, precision) + basis
    working += inserting_device_memory(lattice, block, solver, momenta)
    return PROCESS + max(LINK_FIELDS * links_bytes(lattice), working + solutions)


def contraction_memory(
    lattice: Lattice, vectors: int, columns: int, momenta: int, operators: int, words: int
) -> int:
    """Projections, elementals, and all open spins of a source."""
    pairs = COMPLEX * lattice.time_extent * (words * SPINS**2) ** 2 * momenta
    made = elementals_bytes(lattice, momenta, words, vectors)
    return 2 * projections_bytes(lattice, vectors, columns) + 2 * made + 3 * pairs


def correlators_bytes(lattice: Lattice, sources: int, momenta: int, operators: int) -> int:
    """All sixteen correlators and the matrix of the operators, of each source."""
    return COMPLEX * lattice.time_extent * sources * momenta * (len(NAMES) + operators**2) + RECORD
