"""The growing orthonormal bases of block Lanczos on many systems at once, and the projected operators.

V ``[S, n, size]`` holds for each system the kept Ritz vectors, then one block after the other; X, ``[S, n,
b]``, is the next block, orthonormal and orthogonal to V. H = V^H F V is computed, not inferred from a
recurrence: neither a thick restart nor a column of X that had to be replaced needs any bookkeeping. Every new
block is orthogonalised twice, first against the columns in which F X lies but for rounding, X and the block
before it, or after a restart all, then against all of V; what the second pass finds enters H, too. That is
enough (L. Giraud et al., Numer. Math. 101 (2005) 87) unless F X lies in V: of what rounding leaves then, much
may lie in V again, and it takes another pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.subspace import Apply, GrowingBasis
from stages.lqcd.kernels import batched_basis, block_blas, random_numbers
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, contiguous_slices, slices_field, slices_like
from stages.lqcd.lattice.threads import in_threads

FILTERED = 3
"""Applications of F to the first block before it enters V: each saves a step, at as many in all."""

LOST = 32
"""Eigenvalues of a Gram matrix of unit columns, in rounding units, below which it has no such column."""

OVERLAP = 0.5
"""Of an orthonormal block with V, from which on taking it away asks for another pass."""

TINY = 1e-30
"""Norm of a column that counts as zero."""

THREADED = 64
"""Rows of a matrix from which on a thread of its own costs less than its eigenvalues."""

Matrices = NDArray[np.complex128]
"""Of all systems, ``[S, rows, columns]``."""


class BatchedSubspace(GrowingBasis):
    """V, H and X of `systems` systems of `rows` rows.

    used: columns of V in use. near: the first of those in which F X lies but for rounding.

    The parts of a field that belong to different systems follow each other, so that a block ``[*shape, b]``
    of the whole is a block ``[S, n, b]``.
    """

    def __init__(
        self,
        xp: ModuleType,
        systems: int,
        rows: int,
        dtype: np.dtype,
        size: int,
        block: int,
        seed: int,
    ) -> None:
        super().__init__(block, dtype, seed)
        self.xp = xp
        self.V = slices_field((systems, rows, size), dtype, xp)
        self.X, self.spare = (slices_field((systems, rows, block), dtype, xp) for _ in range(2))
        self.image = slices_like(self.X)
        self.H = np.zeros((systems, size, size), complex)
        self.G: Matrices = np.zeros((systems, block, block), complex)
        """Gram matrices of what the last expansion left of F X beside V: of residuals of Ritz vectors."""

    def start(self, apply: Apply, used: int = 0) -> None:
        """A fresh random block, orthogonal to the first columns of V, which alone are kept.

        The block is filtered where none are.
        """
        self.used, self.near = used, 0
        self._fill(self.X)
        for _ in range(0 if used else min(FILTERED, self.block - 1)):
            self._complete(1)
            self.X, self.spare = apply(self.X, self.spare)
        self._complete()

    def expand(self, apply: Apply) -> None:
        """Append X, compute its column of H with W = F X, and orthonormalise W to the next X; apply: F."""
        first = self.append(apply)
        C = self._take_away(self.near)
        self.near = first
        self.G = self._gram()
        _, S = self._orthonormalise(self.G)
        self.enter(first, C + self._complete(1, S))

    def ritz(self, systems: slice = slice(None)) -> tuple[NDArray[np.float64], Matrices]:
        """Ritz values of F of these systems, descending, ``[S, used]``, and their vectors in terms of V."""
        values, vectors = eigh(self.H[systems, : self.used, : self.used])
        return values[:, ::-1], vectors[..., ::-1]

    def residuals(self, vectors: Matrices, systems: slice = slice(None)) -> NDArray[np.float64]:
        """Norms |F y - theta y| of Ritz vectors after an expansion, ``[S, columns]``.

        All of F V that lies outside of V comes from its last block (as in a Lanczos recurrence, but to
        rounding only, for the projections are computed).
        """
        last = vectors[:, self.used - self.block :]
        return np.sqrt(np.einsum("sik,sij,sjk->sk", last.conj(), self.G[systems], last).real.clip(0))

    def restart(self, values: NDArray[np.float64], vectors: Matrices, count: int) -> None:
        """V becomes the first so many Ritz vectors; X goes on."""
        self._rotate(self.V[..., : self.used], vectors[..., :count])
        self.used, self.near = count, 0
        self.H[:] = 0
        index = np.arange(count)
        self.H[:, index, index] = values[:, :count]

    def mix(self) -> None:
        """Begin anew from a block of random combinations of V."""
        numbers = np.random.default_rng([self.seed, self.draws]).normal(size=(2, self.used, self.block))
        self.draws += 1
        mixture = np.broadcast_to(numbers[0] + 1j * numbers[1], (len(self.V), self.used, self.block))
        assign(self.X, 0)
        batched_basis.add_combination(
            self.X, self.V[..., : self.used], to_device_like(np.ascontiguousarray(mixture), self.X)
        )
        self.used = self.near = 0
        self._complete()

    def measure(self, A: LinearOperator, columns: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rayleigh quotients and true residuals of A for these unit vectors of V, ``[S, columns]``."""
        values, residuals = np.empty((2, len(self.V), columns.stop - columns.start))
        for some, count, block, image in self._images(A, columns):
            quotients, norms2 = batched_basis.rayleigh(block, image)
            values[:, some] = as_numpy(quotients)[:, :count]
            residuals[:, some] = np.sqrt(as_numpy(norms2))[:, :count]
        return values, residuals

    def diagonalise(self, A: LinearOperator, k: int) -> None:
        """The first k columns of V become the eigenvectors of A in their span, of each system."""
        vectors = self.V[..., :k]
        projected: Matrices = np.empty((len(vectors), k, k), complex)
        for some, count, _, image in self._images(A, slice(0, k)):
            projected[:, :, some] = as_numpy(batched_basis.project(vectors, image))[..., :count]
        _, rotation = eigh((projected + projected.conj().swapaxes(1, 2)) / 2)
        self._rotate(vectors, rotation)

    def release(self) -> None:
        """Free nothing: results are measured by the blocks of the cycles."""

    def lowest(self, values: NDArray[np.float64]) -> tuple[NDArray[np.intp], Array]:
        """The numbers of the leading columns, whose values ascend to rounding, and the columns."""
        k = values.shape[-1]
        return np.arange(k), contiguous_slices(self.V[..., :k])

    def _images(self, A: LinearOperator, columns: slice) -> Iterator[tuple[slice, int, Array, Array]]:
        """Columns of V, block by block: which, how many, the block that holds them, and A times it."""
        for first in range(columns.start, columns.stop, self.block):
            count = min(self.block, columns.stop - first)
            some = slice(first - columns.start, first - columns.start + count)
            assign(self.spare, self.V[..., first : first + self.block])  # V is wider than what is wanted
            A.apply(self.spare.reshape(*A.shape, -1), self.image.reshape(*A.shape, -1))
            yield some, count, self.spare, self.image

    def _complete(self, passes: int = 2, S: Matrices | None = None) -> Matrices:
        """Make X orthonormal and orthogonal to V; returns V^H X S, ``[S, used, b]``, of X as it was.

        In so many passes, or until one changes little; vanishing columns become random ones.
        """
        S = np.eye(self.block, dtype=complex) if S is None else S
        taken: Matrices = np.zeros((len(self.V), self.used, self.block), complex)
        while passes:
            passes -= 1
            if self.used:
                C = self._take_away()
                taken += C @ S
                if np.linalg.norm(C, axis=(1, 2)).max() > OVERLAP:
                    passes = max(passes, 1)
            lost, factor = self._orthonormalise(self._gram())
            if lost.any():
                fresh = slices_like(self.X)
                self._fill(fresh)
                chosen = lost[:, :, None] * np.eye(self.block, dtype=complex)
                batched_basis.add_combination(self.X, fresh, to_device_like(chosen, fresh))
                passes = 2
            if passes:
                S = np.where(lost[:, :, None], 0, factor) @ S
        return taken

    def _gram(self) -> Matrices:
        return as_numpy(batched_basis.project(self.X, self.X))

    def _orthonormalise(self, G: Matrices) -> tuple[NDArray[np.bool_], Matrices]:
        """X becomes orthonormal in each system but for columns that depended on others, which become short.

        Returns ``[S, b]``, True for these; and S ``[S, b, b]``: what X was is X S.

        G: X^H X, by whose eigenvectors it goes (Stathopoulos and Wu, SIAM J. Sci. Comput. 23 (2002) 2165).
        """
        norms = np.sqrt(np.einsum("sii->si", G).real)
        inverse = np.divide(1, norms, out=np.zeros_like(norms), where=norms > TINY)
        values, vectors = eigh(inverse[:, :, None] * G * inverse[:, None, :])
        least = LOST * self.unit
        roots = np.sqrt(np.maximum(values, least))
        self._rotate(self.X, inverse[:, :, None] * vectors / roots[:, None, :])
        S = roots[:, :, None] * vectors.conj().swapaxes(1, 2) * norms[:, None, :]
        return values <= least, S

    def _fill(self, block: Array) -> None:
        """Random columns of norm near one."""
        random_numbers.fill_random(block, self.seed, self.draws)
        self.draws += 1
        block_blas.scale(block, (1.5 / block.shape[1]) ** 0.5, block)

    def _take_away(self, first: int = 0) -> Matrices:
        """X -= V V^H X, of the columns of V from `first` on; V^H X ``[S, used, b]``, 0 before them."""
        V = self.V[..., first : self.used]
        C = np.zeros((len(V), self.used, self.block), complex)
        C[:, first:] = as_numpy(batched_basis.project(V, self.X))
        batched_basis.add_combination(self.X, V, to_device_like(-C[:, first:], self.X))
        return C

    def _rotate(self, V: Array, Q: Matrices) -> None:
        batched_basis.rotate_in_place(V, to_device_like(np.ascontiguousarray(Q), V))


def eigh(matrices: Matrices) -> tuple[NDArray[np.float64], Matrices]:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices ``[S, k, k]``; large ones in threads."""
    if matrices.shape[-1] < THREADED:
        values, vectors = np.linalg.eigh(matrices)
        return values, vectors
    pairs = in_threads(np.linalg.eigh, matrices)
    return np.stack([values for values, _ in pairs]), np.stack([vectors for _, vectors in pairs])
