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

from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.window import not_finite
from stages.lqcd.kernels import basis, block_blas, lane_blas, random_numbers
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, contiguous, empty_field, field_like
from stages.lqcd.kernels.host_lapack import Matrix, eigenpairs_of, rotated
from stages.lqcd.kernels.transfer import copy_to_host, to_device
from stages.lqcd.solvers.orthonormal import orthonormalise

Apply = Callable[[Array, Array], tuple[Array, Array]]
"""apply(x, spare): F x and the other array, both may be overwritten."""

COLUMNS = 16
"""Vectors that are copied from a device together."""


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

    def append(self, apply: Apply) -> int:
        """Append X to V and make X = F X; returns where the block begins in V."""
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
        xp: ModuleType,
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
        self.E = np.zeros((size, size), complex)
        self.loss: Matrix = np.zeros((0, block), complex)
        self.locked = self.passes = self.second_passes = 0

    def start(self) -> None:
        """A fresh random block orthogonal to all columns in use."""
        self._complete(0, np.zeros((self.block, self.block), complex))

    def expand(self, apply: Apply) -> None:
        """Append X, compute its column of H with W = F X, and orthonormalise W to the next X; apply: F."""
        first, width = self.append(apply), self.block
        self.E[:first, first : self.used] = self.loss
        self.E[first : self.used, :first] = self.loss.conj().T
        self.E[first : self.used, first : self.used] = self._rounding(width, width)
        C = self._orthogonalise()
        size = float(np.linalg.norm(C, axis=0).max())
        rank, S = orthonormalise(self.X, floor=size)
        self.loss = self._lost(C, S, rank)
        self.enter(first, C + self._complete(rank, S))

    def ritz(self, first: int = 0) -> tuple[NDArray[np.float64], Matrix]:
        """Eigenvalues, descending, and eigenvectors of H on the columns in use from `first` on."""
        values, vectors = eigenpairs_of(self.H[first : self.used, first : self.used], self.X)
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
            matrix[: self.used, : self.used] = rotated(matrix[:before, :before], rotation, V)
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
        self.loss = np.ones((self.used, self.block), complex)
        self._complete(self.block, np.zeros((self.block, self.block), complex))

    def permute(self, order: NDArray[np.intp]) -> None:
        """Put the first columns of V, locked ones, into this order; H and E are to be dropped."""
        V = self.V[..., : len(order)]
        basis.rotate_in_place(V, to_device_like(np.eye(len(order), dtype=complex)[:, order], V))

    def measure(self, A: LinearOperator, columns: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Values lambda = v^H A v and residuals |A v - lambda v| of these unit vectors of V."""
        vectors = self.V[..., columns]
        values, residuals = np.empty((2, vectors.shape[-1]))
        for some, block, image in self._images(A, vectors):
            count = some.stop - some.start
            norms = as_numpy(block_blas.norms2(block))
            quotients = as_numpy(block_blas.dots(block, image)).real / np.where(norms > 0, norms, 1)
            block_blas.update(image, block, to_device_like(np.diag(-quotients).astype(complex), block))
            values[some] = quotients[:count]
            residuals[some] = np.sqrt(as_numpy(block_blas.norms2(image)))[:count]
        return values, residuals

    def diagonalise(self, A: LinearOperator, k: int) -> NDArray[np.float64]:
        """The first k columns of V become the eigenvectors of A in their span; the values, ascending.

        Raises InputError for an operator that gives NaN.
        """
        vectors = self.V[..., :k]
        projected = np.empty((k, k), complex)
        for some, _, image in self._images(A, vectors):
            projected[:, some] = as_numpy(basis.project(vectors, image))[:, : some.stop - some.start]
        if not np.isfinite(projected).all():
            raise not_finite(A)
        values, rotation = eigenpairs_of((projected + projected.conj().T) / 2, vectors)
        basis.rotate_in_place(vectors, to_device_like(rotation, vectors))
        return values

    def release(self) -> None:
        """Free X and a spare block, which end the cycles."""
        self.X = self.spare = self.third[..., :0]

    def lowest(self, values: NDArray[np.float64]) -> tuple[NDArray[np.intp], Array]:
        """The order of the leading columns in which these values ascend, and the columns in it; ends all."""
        order = np.argsort(values, kind="stable")
        del self.third  # the result needs the memory
        vectors = self.V[..., : len(order)]
        in_order = (order == np.arange(len(order))).all()
        return order, contiguous(vectors if in_order else lane_blas.lane_take(vectors, order))

    def _images(self, A: LinearOperator, vectors: Array) -> Iterator[tuple[slice, Array, Array]]:
        """Columns, the block that holds them (with zeros to its full width), and A times it."""
        image = field_like(self.third)
        for first in range(0, vectors.shape[-1], self.third.shape[-1]):
            columns = slice(first, min(first + self.third.shape[-1], vectors.shape[-1]))
            count = columns.stop - first
            assign(self.third[..., :count], vectors[..., columns])
            assign(self.third[..., count:], 0)
            A.apply(self.third, image)
            yield columns, self.third, image

    def saved(self) -> dict[str, NDArray]:
        """All that `restore` needs, on the host, beside `counts`."""
        vectors = {
            f"vectors_{first}": copy_to_host(contiguous(self.V[..., first : min(first + COLUMNS, self.used)]))
            for first in range(0, self.used, COLUMNS)
        }
        return {
            **vectors,
            "next_block": np.array(copy_to_host(self.X)),
            "projected": self.H[: self.used, : self.used].copy(),
            "lost": self.E[: self.used, : self.used].copy(),
            "block_lost": self.loss.copy(),
        }

    @property
    def counts(self) -> list[int]:
        return [self.locked, self.used, self.draws, self.passes, self.second_passes]

    def restore(self, arrays: dict[str, NDArray], counts: list[int]) -> None:
        """Go on from what `saved` and `counts` gave."""
        put = (lambda array: array) if self.xp is np else to_device
        self.locked, self.used, self.draws, self.passes, self.second_passes = counts
        for first in range(0, self.used, COLUMNS):
            assign(self.V[..., first : min(first + COLUMNS, self.used)], put(arrays[f"vectors_{first}"]))
        assign(self.X, put(arrays["next_block"]))
        self.H[: self.used, : self.used] = arrays["projected"]
        self.E[: self.used, : self.used] = arrays["lost"]
        self.loss = arrays["block_lost"].copy()

    def _orthogonalise(self) -> Matrix:
        """X -= V V^H X; the projections ``[used, width]``."""
        V = self.V[..., : self.used]
        C = basis.project(V, self.X)
        basis.add_combination(self.X, V, -C)
        self.passes += 2
        return as_numpy(C)

    def _complete(self, rank: int, S: Matrix) -> Matrix:
        """Make the first `rank` columns of X a whole orthonormal block, orthogonal to V.

        Missing columns become random ones. S: of the pass before, overwritten.
        Returns what further passes add to the projections.
        """
        width = self.block
        added: Matrix = np.zeros((self.used, width), complex)
        S[rank:] = 0
        while rank < width or np.abs(self.loss).max(initial=0) > self.unit ** (2 / 3):
            if rank < width:
                self._draw(rank)
            C = self._orthogonalise() if self.used else np.zeros((0, width), complex)
            rank, T = orthonormalise(self.X, floor=1.0)
            added += C @ S
            S = T @ S
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
