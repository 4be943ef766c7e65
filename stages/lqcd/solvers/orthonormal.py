"""Thin QR decomposition of a tall-skinny block through its Gram matrix, revealing its rank.

Cholesky QR: G = Q^H Q = L L^H, S = L^H, Q <- Q S^-1 (Stathopoulos and Wu, SIAM J. Sci. Comput. 23 (2002)
2165). Its columns are scaled to one first. The loss of orthogonality is the condition of G times the rounding
unit; a second pass removes it (Yamamoto et al., ETNA 44 (2015) 306). Where G is too ill-conditioned for
Cholesky its eigenvectors, with the small eigenvalues raised, take the place of S^-1: the next pass then
resolves what lies in their directions, down to the rounding of the block itself, and what lies below that is
left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels import block_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.host_lapack import Matrix, cholesky
from stages.lqcd.solvers.recurrence import BreakdownError
from stages.lqcd.solvers.solution import SolveStatus

PASSES = 5
NOISE = 32
"""A direction is left out if it is less than this many rounding units in every column."""


def orthonormalise(block: Array, floor: float = 0.0) -> tuple[int, Matrix]:
    """Q and S with Q S = block: the rank r and S, complex128 ``[N, N]``; Q replaces `block` ``[..., N]``.

    Q^H Q = 1 for the first r columns; the other columns of Q and rows of S are zero. floor: the size of what
    the columns were computed from, if they are small differences: directions below rounding of it are noise.
    Raises BreakdownError if the block is not finite.
    """
    unit = float(np.finfo(block.dtype).eps)
    G = _own_gram(block)
    norms = np.sqrt(G.diagonal().real)
    noise = NOISE * unit * np.maximum(norms, floor)
    if (norms > noise).all():
        S, inverse, condition = cholesky(G)
        if condition * unit < np.sqrt(unit):
            block_blas.rotate(block, to_device_like(inverse, block), block)
            return len(S), S
    return _in_passes(block, G, noise)


def _in_passes(block: Array, G: Matrix, noise: NDArray[np.float64]) -> tuple[int, Matrix]:
    """Orthonormalise a nearly dependent block; G: its Gram matrix; noise: what is nothing in each column."""
    unit = float(np.finfo(block.dtype).eps)
    S: Matrix = np.eye(len(G), dtype=np.complex128)
    for last in (False,) * (PASSES - 1) + (True,):
        contributions = np.sqrt(G.diagonal().real)[:, None] * np.abs(S)
        columns = np.flatnonzero((contributions > noise).any(axis=1))
        factor, inverse, condition = _factors(G[np.ix_(columns, columns)], unit)
        reduced, T = np.zeros_like(G), np.zeros_like(G)
        reduced[: columns.size], T[columns, : columns.size] = factor @ S[columns], inverse
        S = reduced
        block_blas.rotate(block, to_device_like(T, block), block)
        if last or condition * unit < np.sqrt(unit):
            break
        G = _own_gram(block)
    return columns.size, S


def _factors(G: Matrix, unit: float) -> tuple[Matrix, Matrix, float]:
    """S, S^-1, condition of G = S^H S: by Cholesky, or nearly so by eigenvectors (condition infinite)."""
    S, inverse, condition = cholesky(G)
    if condition * unit < 0.1:
        return S, inverse, condition
    norms = np.sqrt(G.diagonal().real)
    values, vectors = np.linalg.eigh(G / np.outer(norms, norms))
    roots = np.sqrt(np.maximum(values, 16 * unit * values[-1]))
    basis = vectors.astype(np.complex128, copy=False)
    return (basis * roots).conj().T * norms, basis / np.outer(norms, roots), np.inf


def _own_gram(block: Array) -> Matrix:
    G = host_gram(block, block)
    if not np.isfinite(G).all():
        raise BreakdownError(SolveStatus.NOT_FINITE)
    return G


def host_gram(x: Array, y: Array) -> Matrix:
    """x^H y on the host, complex128 ``[Nx, Ny]``."""
    return as_numpy(block_blas.gram(x, y))
