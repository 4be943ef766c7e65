"""Thin QR decomposition of a tall-skinny block through its Gram matrix, revealing its rank.

Cholesky QR: G = Q^H Q = L L^H, S = L^H, Q <- Q S^-1 (Stathopoulos and Wu, SIAM J. Sci. Comput. 23 (2002)
2165). Its columns are scaled to one first. The loss of orthogonality is the condition of G times the rounding
unit; a second pass removes it (Yamamoto et al., ETNA 44 (2015) 306). Where G is too ill-conditioned for
Cholesky its eigenvectors, with the small eigenvalues raised, take the place of S^-1: the next pass then
resolves what lies in their directions, down to the rounding of the block itself, and what lies below that is
left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from stages.kernels.dispatch import Array, Kernels, to_device_like, to_host
from stages.solvers.reliable import BreakdownError
from stages.solvers.solution import Status

PASSES = 5
NOISE = 32
"""A direction is left out if it is less than this many rounding units in every column."""

Matrix = NDArray[np.complex128]


def orthonormalise(kernels: Kernels, block: Array, floor: float = 0.0) -> tuple[int, Matrix]:
    """Q and S with Q S = block: the rank r, and S complex128 ``[N, N]``; Q replaces `block`, ``[..., N]``, in
    place.

    Q^H Q = 1 for the first r columns; the other columns of Q and rows of S are zero. floor: the size of what
    the columns were computed from, if they are small differences: directions below rounding of it are noise.
    Raises BreakdownError if the block is not finite.
    """
    unit = float(np.finfo(block.dtype).eps)
    S: Matrix = np.eye(block.shape[-1], dtype=np.complex128)
    scale = None
    for _ in range(PASSES):
        G = host_gram(kernels, block, block)
        if not np.isfinite(G).all():
            raise BreakdownError(Status.NOT_FINITE)
        norms = np.sqrt(G.diagonal().real)
        scale = np.maximum(norms, floor) if scale is None else scale
        # rows of S that are more than noise in some column
        kept = np.flatnonzero((norms[:, None] * np.abs(S) > NOISE * unit * scale).any(axis=1))
        factor, inverse, condition = _factors(G[np.ix_(kept, kept)], norms[kept], unit)
        S = _embedded(factor @ S[kept], S.shape)
        T = np.zeros_like(G)
        T[kept, : kept.size] = inverse
        kernels.block_blas.rotate(block, to_device_like(T, block), block)
        if condition * unit < np.sqrt(unit):
            break
    return kept.size, S


def host_gram(kernels: Kernels, x: Array, y: Array) -> Matrix:
    """x^H y on the host, complex128 ``[Nx, Ny]``."""
    return to_host(kernels.block_blas.gram(x, y))


def one_norm(matrix: Matrix) -> float:
    """Largest absolute column sum."""
    return float(np.abs(matrix).sum(axis=0).max())


def _factors(G: Matrix, norms: NDArray[np.float64], unit: float) -> tuple[Any, Any, float]:
    """S, S^-1 and the condition of G = S^H S: by Cholesky, or nearly so, by eigenvectors (condition then
    infinite).

    norms: the square roots of the diagonal of G.
    """
    if norms.size == 0:
        return G, G, 1.0
    scaled = G / np.outer(norms, norms)
    upper, info = lapack.zpotrf(scaled, lower=0, clean=1)
    if info == 0:
        inverse, info = lapack.ztrtri(upper, lower=0)
        condition = (one_norm(upper) * one_norm(inverse)) ** 2 if info == 0 else np.inf
        if condition * unit < 0.1:
            return upper * norms, inverse / norms[:, None], condition
    values, vectors = np.linalg.eigh(scaled)
    roots = np.sqrt(np.maximum(values, 16 * unit * values[-1]))
    return roots[:, None] * vectors.conj().T * norms, vectors / np.outer(norms, roots), np.inf


def _embedded(rows: Matrix, shape: tuple[int, ...]) -> Matrix:
    full = np.zeros(shape, np.complex128)
    full[: rows.shape[0]] = rows
    return full
