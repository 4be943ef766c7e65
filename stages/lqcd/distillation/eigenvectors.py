"""The lowest eigenvectors of the three-dimensional Laplacian on time slices (distillation, arXiv:0905.2160).

They come from block Lanczos on the even sites (`stages.lqcd.dirac.laplacian`), all slices together; where so
many are wanted that Lanczos has no room, from singular value decompositions of the hop. A fixed convention
for phases, and for the basis of a degenerate subspace, makes them functions of the links alone: for the
vectors v_1 ... v_d of a degenerate eigenvalue, and the random vectors r_1 ... r_d of a fixed sequence, the
matrix v_i^H r_j is upper triangular with a positive diagonal. So v^H r_1 > 0 for a vector that has no
partner.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.laplacian import DIAGONAL, SpatialHop, check_links, folded_laplacian
from stages.lqcd.eigen.batched_lanczos import BatchedLanczos
from stages.lqcd.eigen.lanczos import Progress
from stages.lqcd.eigen.window import subspace_size
from stages.lqcd.kernels import batched_basis, random_numbers, slice_products
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import contiguous, contiguous_slices, repeat, slices_like, zero_field
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.lattice.threads import in_threads

MOST_DENSE_ROWS = 2048
"""Sites times colours of one parity of a slice, for which dense matrices are made."""

BOUND = 4
"""Residual of -Laplacian over the tolerance. Values closer than that are taken as one: wider groups would mix
vectors that differ by more than they may.
"""

DEGENERATE = 100
"""Rounding units by which equal values may differ in what is found."""

DTYPES = {"double": np.complex128, "single": np.complex64}
"""Precision in a parameter file: that of the vectors and of all that is done with them."""

BLOCKS = 8
"""Blocks of the eigensolver beside its basis: two of the iteration, one of a measurement, one inside the
Laplacian, and two of what norms are made of; two in what a GPU's pool cannot use again."""

FIELDS = 5
"""Fields on one parity alive while some modes are completed or measured."""

COLUMNS = 32
"""Vectors that a hop takes at a time."""

REFERENCE_SEED = 905
"""Of the random vectors that phases refer to."""


class LaplaceModes(NamedTuple):
    """Eigenvectors of -Laplacian on T slices, orthonormal on each, in the dtype asked for.

    vectors: ``[T, parity, site of the slice, 3, k]``, parity that of x + y + z + t; values: ``[T, k]``
    ascending; residuals: |-Laplacian v - lambda v|, recomputed, ``[T, k]``.
    """

    vectors: Array
    values: NDArray[np.float64]
    residuals: NDArray[np.float64]


@dataclass(frozen=True)
class LaplaceSolver:
    """Settings of the search for the lowest `vectors` modes of each slice.

    tolerance: of |A u - alpha u| / 36 for A = 36 - H^2, which bounds the residual of -Laplacian by about 4
    times as much. dtype: complex64 or complex128. Raises InputError for impossible values.

    Of a multiplet that `vectors` cuts, any of its vectors may be found.
    """

    vectors: int
    block: int = 8
    tolerance: float = 1e-10
    dtype: Any = np.complex128
    max_restarts: int = 100

    def __post_init__(self) -> None:
        self.method  # noqa: B018 - which checks the settings

    @property
    def method(self) -> BatchedLanczos:
        """Block Lanczos on all slices."""
        return BatchedLanczos(self.vectors, self.block, self.tolerance, max_restarts=self.max_restarts)

    def needed_bytes(self, sites_per_slice: int, slices: int) -> int:
        """Bytes that a run takes beside the links, with `sites_per_slice` on one parity.

        The Laplacian's own links, and the larger of what Lanczos holds on the even sites, its basis, blocks
        and result, and of what the modes are completed and measured with.
        """
        rows, itemsize = 3 * sites_per_slice, np.dtype(self.dtype).itemsize
        packed = 3 * 6 * 9 * sites_per_slice * slices * itemsize  # of two parities, from one doubled
        searching = subspace_size(self.vectors, self.block, rows) + BLOCKS * self.block + self.vectors
        completing = 3 * self.vectors + FIELDS * min(COLUMNS, self.vectors)
        return packed + rows * slices * itemsize * max(searching, completing)

    def solve(
        self,
        links: Array,
        lattice: Lattice,
        times: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> LaplaceModes:
        """Eigenvectors of links ``[mu, parity, site, 3, 3]``, smeared as wanted, without boundary signs.

        times: the slices wanted, by default all: a run of an even number that begins at an even one. Raises
        InputError, and EigenpairsNotConverged.
        """
        hop = SpatialHop(*slices_alone(links, lattice, times), self.dtype)
        slices, rows = hop.lattice.time_extent, _rows(hop.lattice)
        if not 1 <= self.vectors <= 2 * rows:
            raise InputError(
                f"{self.vectors} eigenvectors are wanted, but the Laplacian of a time slice of {lattice} has "
                f"{2 * rows}: ask for 1 to {2 * rows}"
            )
        if self.method.size(rows) < rows:
            pairs = self.method.solve(folded_laplacian(hop), slices, progress=progress)
            values = DIAGONAL - np.sqrt(np.maximum(DIAGONAL**2 - np.sort(pairs.values), 0))
            vectors = _both_parities(hop, pairs.vectors, DIAGONAL - values)
        else:
            self._check_dense(rows)
            values, vectors = _dense(hop, self.vectors)
        width = max(BOUND * self.tolerance, DEGENERATE * float(np.finfo(hop.dtype).eps))
        canonical = _in_convention(vectors, values, width)
        return LaplaceModes(canonical, values, residuals(hop, canonical, values))

    def _check_dense(self, rows: int) -> None:
        """Raises InputError where a dense matrix of so many rows is too large."""
        if rows > MOST_DENSE_ROWS:
            fewer = range(self.vectors)
            most = bisect_left(fewer, rows, key=lambda k: subspace_size(k, self.block, rows)) - 1
            raise InputError(
                f"{self.vectors} eigenvectors of slices with {2 * rows} sites times colours: Lanczos in "
                f"blocks of {self.block} finds up to {most}, and a dense diagonalisation takes up to "
                f"{2 * MOST_DENSE_ROWS}"
            )


def residuals(hop: SpatialHop, vectors: Array, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """|-Laplacian v - lambda v| of `LaplaceModes`, ``[T, k]``."""
    slices, k = len(vectors), vectors.shape[-1]
    norms2 = np.zeros(values.shape)
    for first in range(0, k, COLUMNS):
        some = slice(first, min(first + COLUMNS, k))
        halves = [_field(hop, vectors[:, parity, ..., some]) for parity in (EVEN, ODD)]
        shift = to_device_like(DIAGONAL - values[:, some], vectors)
        for parity, half in enumerate(halves):
            missed = hop.apply_to(parity, halves[1 - parity], b=-1.0)
            missed = missed.reshape(slices, -1, 3, half.shape[-1])
            slice_products.slice_add(missed, half.reshape(missed.shape), shift)
            norms2[:, some] += as_numpy(slice_products.slice_norms2(missed))
    return np.sqrt(norms2)


def slices_alone(links: Array, lattice: Lattice, times: Sequence[int] | None) -> tuple[Array, Lattice]:
    """Links and lattice of some slices alone: an even number from an even one on. Raises InputError."""
    check_links(links, lattice)
    if times is None or list(times) == list(range(lattice.time_extent)):
        return links, lattice
    start, count = next(iter(times), 0), len(times)
    if not count or list(times) != list(range(start, start + count)) or start % 2 or count % 2:
        raise InputError(
            "time slices go together in runs of an even number that begin at an even one, got "
            f"{list(times)}: take an even chunk of times"
        )
    if not 0 <= start < start + count <= lattice.time_extent:
        raise InputError(
            f"time slices {list(times)} are not among 0 to {lattice.time_extent - 1} of {lattice}"
        )
    x, y, z, t = lattice.extents
    by_slice = links.reshape(4, 2, t, -1, 3, 3)[:, :, start : start + count]
    return contiguous(by_slice.reshape(4, 2, -1, 3, 3)), Lattice((x, y, z, count))


def _rows(lattice: Lattice) -> int:
    """Sites times colours of one parity of a slice."""
    return 3 * lattice.half_volume // lattice.time_extent


def _field(hop: SpatialHop, part: Array) -> Array:
    """``[T, site of the slice, 3, n]`` as a contiguous field ``[site, 3, n]``."""
    return contiguous_slices(part).reshape(hop.lattice.half_volume, 3, -1)


def _both_parities(hop: SpatialHop, even: Array, h: NDArray[np.float64]) -> Array:
    """(u, H u / h) / sqrt 2 of even vectors u ``[T, rows, k]`` with H^2 u = h^2 u."""
    slices, k = len(even), even.shape[-1]
    vectors = slices_like(even, (slices, 2, even.shape[1] // 3, 3, k))
    half = to_device_like(np.full((slices, k), 0.5**0.5, even.real.dtype), even)
    slice_products.slice_scale(even.reshape(slices, -1, 3, k), half, vectors[:, EVEN])
    for first in range(0, k, COLUMNS):
        some = slice(first, min(first + COLUMNS, k))
        odd = hop.apply_to(ODD, _field(hop, vectors[:, EVEN, ..., some]))
        odd = odd.reshape(slices, -1, 3, some.stop - first)
        slice_products.slice_scale(odd, to_device_like(1 / h[:, some], odd), vectors[:, ODD, ..., some])
    return vectors


def _dense(hop: SpatialHop, k: int) -> tuple[NDArray[np.float64], Array]:
    """Values and vectors from the hop from even to odd sites as dense matrices."""
    slices, rows = hop.lattice.time_extent, _rows(hop.lattice)
    xp = hop.xp
    matrices = np.empty((slices, rows, rows), complex)
    for first in range(0, rows, COLUMNS):
        some = slice(first, min(first + COLUMNS, rows))
        unit = zero_field((slices, rows, some.stop - first), hop.dtype, xp)
        unit[:, some] = to_device_like(np.eye(some.stop - first), unit)
        matrices[..., some] = as_numpy(hop.apply_to(ODD, _field(hop, unit))).reshape(slices, rows, -1)
    vectors = np.empty((slices, 2, rows, k), hop.dtype)
    values = np.empty((slices, k))

    def fill(time: int) -> None:
        values[time], vectors[time] = _lowest_of_hop(matrices[time], k)

    in_threads(fill, range(slices))
    return values, to_device_like(vectors.reshape(slices, 2, rows // 3, 3, k), hop.links)


def _lowest_of_hop(matrix: NDArray, k: int) -> tuple[NDArray[np.float64], NDArray]:
    """Lowest modes of one slice, from the singular values h of its hop.

    Values 6 -+ h, vectors (u, +-w) / sqrt 2.
    """
    w, h, u = np.linalg.svd(matrix)
    falling = np.arange(len(h))
    which = np.concatenate([falling, falling[::-1]])[:k]
    signs = np.repeat([1.0, -1.0], len(h))[:k]
    vectors = np.stack([u.conj().T[:, which], w[:, which] * signs])
    return DIAGONAL - signs * h[which], 0.5**0.5 * vectors


def _in_convention(vectors: Array, values: NDArray[np.float64], width: float) -> Array:
    """The vectors with the module's phases and bases of degenerate values, which lie within `width`."""
    slices, k = values.shape
    groups = [_groups(row, width) for row in values]
    widest = max(group.stop - group.start for row in groups for group in row)
    columns = contiguous_slices(vectors).reshape(slices, -1, k)
    references = slices_like(vectors, (slices, columns.shape[1], widest))
    random_numbers.fill_random(references[0], REFERENCE_SEED, 0)
    repeat(references[1:], references[0])
    overlaps = as_numpy(batched_basis.project(columns, references))
    rotations = _rotations(groups, overlaps, k)
    batched_basis.rotate_in_place(columns, to_device_like(rotations, vectors))
    return columns.reshape(vectors.shape)


def _rotations(groups: list[list[slice]], overlaps: NDArray, k: int) -> NDArray:
    """Rotations ``[T, k, k]`` within groups by their overlaps ``[T, k, widest group]`` with the references.

    Those of one size go together: most groups are single vectors.
    """
    rotations = np.zeros((len(groups), k, k), complex)
    for size in {group.stop - group.start for row in groups for group in row}:
        starts = [(time, g.start) for time, row in enumerate(groups) for g in row if g.stop - g.start == size]
        times, first = np.array(starts).T
        rows = first[:, None] + np.arange(size)
        Q, R = np.linalg.qr(overlaps[times[:, None], rows, :size])
        diagonal = np.diagonal(R, axis1=1, axis2=2)[:, None]
        rotations[times[:, None, None], rows[:, :, None], rows[:, None]] = Q * (diagonal / np.abs(diagonal))
    return rotations


def _groups(values: NDArray[np.float64], width: float) -> list[slice]:
    """Runs of ascending values whose neighbours lie within `width`."""
    starts = [0, *(np.flatnonzero(np.diff(values) > width) + 1), len(values)]
    return [slice(first, stop) for first, stop in pairwise(starts)]
