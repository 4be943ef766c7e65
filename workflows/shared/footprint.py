"""What a task needs in memory and a chunk takes in the store, projected from extents and counts; bytes."""

from __future__ import annotations

from stages.loops.correlator import FLAVOURS
from stages.lqcd.eigen.memory import needed_bytes
from stages.lqcd.eigen.window import subspace_size
from stages.lqcd.lattice.geometry import Lattice

COMPLEX = 16
"""Of a complex128 number."""
MATRIX = 9 * COMPLEX
PROCESS = 300_000_000
"""A worker with its compiled kernels, before any field."""
RECORD = 4_000
"""The attributes of a chunk."""

WORKING_FIELDS = 10
"""Blocks of right-hand sides alive in a solver, in double precision: b, x, r, q, p, A p, temporaries."""
LINK_FIELDS = 8
"""Link fields alive while HISQ links are made: two levels, staples, and the results."""


DEVICE_BLOCKS = {"double": 9.2, "double-single": 7.6}
"""The most blocks of right-hand sides that a GPU's pool holds at a time, in double precision: b, x, the
residual and one more outside the solver, the rest inside. Measured at 24^4, N = 16 and 32: 8.6 to 8.8 and
7.4 to 8.6."""
DEVICE_LINK_FIELDS = {"double": 12.6, "double-single": 16.9}
"""Link fields that a GPU's pool holds when HISQ links have been made and packed; measured at 16^4 and 24^4.
Naive links take less than their solves."""
NARROW = 8
"""Columns up to which the dslash reads compressed links; batched CG narrows to that as columns converge."""


def links_bytes(lattice: Lattice) -> int:
    """A gauge field of complex128 links."""
    return 4 * MATRIX * lattice.volume


def loops_bytes(lattice: Lattice, vectors: int) -> int:
    """J_mu(t) and the condensate by parity of each noise vector."""
    return 8 * vectors * (4 * lattice.time_extent + 2) + RECORD


def space_bytes(lattice: Lattice, vectors: int, precision: str) -> int:
    """Eigenvectors on the even sites with their scales, two matrices, eigenvalues and residuals."""
    per_site = 3 * COMPLEX // {"double": 1, "single": 2, "half": 4}[precision]
    scale = 4 if precision == "half" else 0
    return lattice.half_volume * vectors * (per_site + scale) + 2 * vectors * (COMPLEX * vectors + 8) + RECORD


def basis_bytes(lattice: Lattice, vectors: int, precision: str) -> int:
    """Eigenvectors where solves use them: complex64 if they were rounded."""
    return 3 * lattice.half_volume * vectors * (COMPLEX if precision == "double" else COMPLEX // 2)


def eigensolve_device_memory(lattice: Lattice, vectors: int, block: int) -> int:
    """What block Lanczos takes beside the operator."""
    modes = 3 * lattice.half_volume
    return needed_bytes(modes, COMPLEX, vectors, block, subspace_size(vectors, block, modes))


def eigensolve_memory(lattice: Lattice, vectors: int, block: int) -> int:
    """Likewise with the operator, and a copy of the subspace for the checkpoint or of what is stored."""
    modes = 3 * lattice.half_volume
    copied = modes * COMPLEX * subspace_size(vectors, block, modes)
    return solving_memory(lattice, 0, 0) + eigensolve_device_memory(lattice, vectors, block) + copied


def correlator_bytes(lattice: Lattice) -> int:
    """C(t), loops and condensates of all flavours, with errors."""
    return 8 * len(FLAVOURS) * (9 * lattice.time_extent + 4) + RECORD


def noise_bytes(lattice: Lattice) -> int:
    """Moments of the noise of two pieces, and errors, of all flavours."""
    return 8 * len(FLAVOURS) * (21 * lattice.time_extent + 5) + RECORD


def average_bytes(lattice: Lattice, samples: int) -> int:
    """Means, errors, resampled correlators and their covariance."""
    time = lattice.time_extent
    return 8 * len(FLAVOURS) * (10 * time + samples * time + time**2 + 4) + RECORD


def heatbath_memory(lattice: Lattice) -> int:
    """A gauge field, its copy by checkerboard, and the result."""
    return PROCESS + 3 * links_bytes(lattice)


def solving_memory(lattice: Lattice, rhs: int, vectors: int) -> int:
    """Links, the doubled links of the operator in both precisions, a block of `rhs` and the noise vectors."""
    doubled = 16 * MATRIX * lattice.volume
    links = max(LINK_FIELDS * links_bytes(lattice), 3 * links_bytes(lattice) + doubled + doubled // 2)
    field = 3 * COMPLEX * lattice.half_volume
    return PROCESS + links + field * (WORKING_FIELDS * rhs + 2 * vectors)


def operator_device_memory(lattice: Lattice, directions: int, precision: str, narrow: bool) -> int:
    """What stays on a GPU per configuration: link fields, and packed links in the solver's precisions.

    narrow: blocks of up to 8 columns occur, for which single long links are packed in 13 reals, too.
    """
    fields = 4 if directions == 16 else 1
    packed = directions * MATRIX * lattice.volume
    single = packed // 2 if precision == "double-single" else 0
    compressed = single * (18 + 13) // 36 if narrow and directions == 16 else 0
    return fields * links_bytes(lattice) + packed + single + compressed


def solving_device_memory(
    lattice: Lattice, directions: int, precision: str, narrow: bool, rhs: int, vectors: int
) -> int:
    """What comes on top while a block of `rhs` is solved, or while the links are made.

    The current's links, the noise vectors on both parities, and the solver's blocks.
    """
    column = 3 * COMPLEX * lattice.half_volume
    solving = links_bytes(lattice) + int(column * (DEVICE_BLOCKS[precision] * rhs + 2 * vectors))
    if directions < 16:
        return solving
    kept = operator_device_memory(lattice, directions, precision, narrow)
    return max(solving, int(DEVICE_LINK_FIELDS[precision] * links_bytes(lattice)) - kept)
