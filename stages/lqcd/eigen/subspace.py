"""The growing orthonormal basis of block Lanczos, and the projected operator.

    F V_j = V_j H + X S E^H

V holds the locked vectors, then the kept Ritz vectors, then one block after the other; X is the next block.
Every new block is orthogonalised against all of V by one matrix product each way. That loses orthogonality
from one block to the next: with V^H V = 1 + E and C = V^H W,

    V^H X S = V^H (W - V C) = -E C + rounding

so that E can be followed on the host, begun with random numbers of the size of rounding (as H. D. Simon,
Math. Comput. 42 (1984) 115, does it for single vectors). A second pass is made where E would become too
large. Because all projections are computed, H needs no bookkeeping of the arrow that a thick restart leaves
(K. Wu, H. Simon, SIAM J. Matrix Anal. Appl. 22 (2000) 602).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels import basis, block_blas, random_numbers
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, empty_field
from stages.lqcd.kernels.host_lapack import Matrix
from stages.lqcd.solvers.orthonormal import orthonormalise


class GrowingBasis:
    """Basis V, projected matrix H, next block X and a spare one, of one system or many.

    V ``[..., size]``, H ``[..., size, size]`` on the host, X and spare ``[..., block]``. used: columns of V
    in use. draws: random blocks so far.
    """

    V: Array
    X: Array
    spare: Array
    H: NDArray[np.complex128]

    def __init__(self, block: int, dtype: np.dtype, seed: int) -> None:
        self.block, self.seed, self.unit = block, seed, float(np.finfo(dtype).eps)
        self.used = self.draws = 0

    @property
    def size(self) -> int:
        """Columns that V has room for."""
        return self.V.shape[-1]

    @property
    def full(self) -> bool:
        """True if there is no room for another block."""
        return self.used + self.block > self.size

    def append(self, apply: Callable[[Array, Array], tuple[Array, Array]]) -> int:
        """Append X to V and make X = F X; returns where the block begins in V.

        apply(x, spare): F x and the other array, both may be overwritten.
        """
        first, self.used = self.used, self.used + self.block
        assign(self.V[..., first : self.used], self.X)
        self.X, self.spare = apply(self.X, self.spare)
        return first

    def enter(self, first: int, C: NDArray[np.complex128]) -> None:
        """The columns C = V^H F X of H from `first` on, and their mirror image, exactly Hermitian."""
        H, used = self.H, self.used
        H[..., :used, first:used] = C
        H[..., first:used, :used] = C.conj().swapaxes(-1, -2)
        own = C[..., first:, :]
        H[..., first:used, first:used] = (own + own.conj().swapaxes(-1, -2)) / 2


class Subspace(GrowingBasis):
    """V ``[*shape, size]``, H ``[size, size]``, the next block X ``[*shape, block]`` and two spare blocks.

    locked, used: columns of V that are final, and that are in use. The whole space has room for V and X.
    """

    def __init__(
        self,
        xp: Any,
        shape: tuple[int, ...],
        dtype: np.dtype,
        size: int,
        block: int,
        seed: int,
    ) -> None:
        super().__init__(block, dtype, seed)
        self.xp = xp
        self.dimension = int(np.prod(shape))
        self.V = empty_field((*shape, size), dtype, xp)
        self.H = np.zeros((size, size), complex)
        self.X, self.spare, self.third = (empty_field((*shape, block), dtype, xp) for _ in range(3))
        self.S: Matrix = np.zeros((block, block), complex)
        self.E = np.zeros((size, size), complex)
        self.loss: Matrix = np.zeros((0, block), complex)
        self.locked = self.passes = self.second_passes = 0

    def start(self) -> None:
        """A fresh random block orthogonal to all columns in use."""
        self.S = np.zeros((self.block, self.block), complex)
        self._complete(0)

    def expand(self, apply: Callable[[Array, Array], tuple[Array, Array]]) -> None:
        """Append X, compute its column of H with W = F X, and orthonormalise W to the next X; apply: F."""
        first, width = self.append(apply), self.block
        self.E[:first, first : self.used] = self.loss
        self.E[first : self.used, :first] = self.loss.conj().T
        self.E[first : self.used, first : self.used] = self._rounding(width, width)
        C = self._orthogonalise()
        size = float(np.linalg.norm(C, axis=0).max())
        rank, self.S = orthonormalise(self.X, floor=size)
        self.loss = self._lost(C, self.S, rank)
        C = C + self._complete(rank)
        self.enter(first, C)

    def ritz(self, first: int) -> tuple[NDArray[np.float64], Matrix]:
        """Eigenvalues, descending, and eigenvectors of H on the columns in use from `first` on."""
        values, vectors = np.linalg.eigh(self.H[first : self.used, first : self.used])
        return values[::-1], vectors[:, ::-1]

    def restart(self, first: int, values: NDArray[np.float64], vectors: Matrix, keep: int) -> None:
        """Make the columns from `first` on the first so many of these Ritz vectors; X stays as it is."""
        before, self.used = self.used, first + keep
        V = self.V[..., first:before]
        basis.rotate_in_place(V, to_device_like(np.ascontiguousarray(vectors[:, :keep]), V))
        self.passes += 1
        rotation = np.eye(before, self.used, dtype=complex)
        rotation[first:, first:] = vectors[:, :keep]
        for matrix in (self.H, self.E):
            matrix[: self.used, : self.used] = rotation.conj().T @ matrix[:before, :before] @ rotation
        self.loss = rotation.conj().T @ self.loss
        self.H[first : self.used, first : self.used] = np.diag(values[:keep])

    def combine(self, columns: slice) -> None:
        """Drop the active vectors; the next block becomes random combinations of these columns of V."""
        V = self.V[..., columns]
        rng = np.random.default_rng([self.seed, self.draws])
        self.draws += 1
        mixture = rng.normal(size=(V.shape[-1], self.block, 2)).view(complex)[..., 0]
        assign(self.X, 0)
        basis.add_combination(self.X, V, to_device_like(mixture, V))
        self.used = self.locked
        self.H[:] = 0
        orthonormalise(self.X)
        self.S = np.zeros((self.block,) * 2, complex)
        self.loss = np.ones((self.used, self.block), complex)
        self._complete(self.block)

    def permute(self, order: NDArray[np.intp]) -> None:
        """Put the first columns of V, locked ones, into this order; H and E are to be dropped."""
        V = self.V[..., : len(order)]
        basis.rotate_in_place(V, to_device_like(np.eye(len(order), dtype=complex)[:, order], V))

    def _orthogonalise(self) -> Matrix:
        """X -= V V^H X; the projections ``[used, width]``."""
        V = self.V[..., : self.used]
        C = basis.project(V, self.X)
        basis.add_combination(self.X, V, -C)
        self.passes += 2
        return as_numpy(C)

    def _complete(self, rank: int) -> Matrix:
        """Make the first `rank` columns of X a whole orthonormal block, orthogonal to V.

        Missing columns become random ones. Returns what further passes add to the projections; keeps S.
        """
        width = self.block
        added: Matrix = np.zeros((self.used, width), complex)
        self.S[rank:] = 0
        while rank < width or np.abs(self.loss).max(initial=0) > self.unit ** (2 / 3):
            if rank < width:
                self._draw(rank)
            C = self._orthogonalise() if self.used else np.zeros((0, width), complex)
            rank, T = orthonormalise(self.X, floor=1.0)
            added += C @ self.S
            self.S = T @ self.S
            self.loss = self._lost(C, T, rank)
            self.second_passes += 1
        return added

    def _lost(self, C: Matrix, S: Matrix, rank: int) -> Matrix:
        """The estimate of V^H X after a pass with these projections and this S, ``[used, width]``.

        A block whose own orthogonality suffered in the decomposition counts as lost, too.
        """
        width = len(S)
        if rank < width or not len(C):
            return self._rounding(len(C), width)
        size = np.sqrt((np.abs(C) ** 2).sum(axis=0) + (np.abs(S) ** 2).sum(axis=0))
        lost = (self._rounding(len(C), width) * size - self.E[: len(C), : len(C)] @ C) @ np.linalg.inv(S)
        condition = np.linalg.cond(S / np.linalg.norm(S, axis=0))
        return lost + self.unit * condition**2

    def _rounding(self, rows: int, columns: int) -> Matrix:
        """Random numbers of the size of rounding."""
        numbers = np.random.default_rng([self.seed, self.passes]).normal(size=(rows, columns, 2))
        return (self.unit * numbers).view(np.complex128)[..., 0]

    def _draw(self, first: int) -> None:
        """Random columns of norm near one from this one of X on."""
        fresh = empty_field((*self.X.shape[:-1], self.block - first), self.X.dtype, self.xp)
        random_numbers.fill_random(fresh, self.seed, self.draws)
        block_blas.scale(fresh, (1.5 / self.dimension) ** 0.5, fresh)
        self.draws += 1
        assign(self.X[..., first:], fresh)
