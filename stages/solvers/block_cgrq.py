"""Block conjugate gradients in Dubrulle's rQ variant: one Krylov space for all right-hand sides.

M. A. Clark et al., arXiv:1710.09745, algorithm 3 (the method is from A. A. Dubrulle, ETNA 12 (2001) 216),
in the numbering used below:

    1  R = B - A X                        the residual, kept as R = Q C
    2  Q C = R  (thin QR)
    3  S = 1, P = 0
    4  until all columns of C are small:
    5     P = Q + P S^H
    6     alpha = (P^H A P)^-1
    7     X = X + P alpha C
    8     Q S = Q - A P alpha  (thin QR)
    9     C = S C

Q stays orthonormal, so |R_i| is the norm of column i of C. Where the residual block is (nearly) dependent, S
has fewer rows than columns: Q and P become narrower, while C keeps a column for each right-hand side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.dirac.operator import LinearOperator
from stages.kernels.dispatch import Array, Kernels, array_module, to_device_like
from stages.solvers.krylov import KrylovSolver
from stages.solvers.orthonormal import NOISE, Matrix, cholesky, host_gram, orthonormalise
from stages.solvers.reliable import BreakdownError, Recurrence, Vector, next_width
from stages.solvers.solution import Status


@dataclass(frozen=True)
class BlockCGrQ(KrylovSolver):
    """Block CGrQ: fewer iterations than `BatchedCG`, most so for large blocks and small masses.

    In exact arithmetic the dimension divided by the block size bounds the iterations. The linear algebra of a
    step grows with the block size: N = 16 to 32 is a good choice.
    """

    def recurrence(self, A: LinearOperator, kernels: Kernels) -> Recurrence:
        return _BlockRecurrence(A, kernels)


class _BlockRecurrence:
    """Q, P, A P ``[..., w]`` of the inner precision; S, C, alpha and beta, complex128 on the host.

    w is the rank of the residual block, rounded up to one of the fixed widths; what is beyond it is zero.
    Residuals are replaced less often than in batched CG: those combinations of right-hand sides that have
    converged furthest become noise in a replaced block, and their search directions are lost with them.
    """

    narrows = False
    update_at = 1e-3
    lag = 0

    def __init__(self, A: LinearOperator, kernels: Kernels) -> None:
        self.A, self.kernels = A, kernels
        self.unit = float(np.finfo(A.dtype).eps)
        self.p: Array = None
        self.replaced = False

    @property
    def width(self) -> int:
        return self.q.shape[-1]

    def replace(self, residual: Array, target: Vector, kept: NDArray[np.intp] | None) -> None:
        xp, n = array_module(residual), residual.shape[-1]
        rank, C = orthonormalise(self.kernels, residual)  # steps 1, 2; in the outer precision
        width = next_width(max(rank, 1), n)
        self.C, self.rank = C[:width], rank
        self.q = residual[..., :width].astype(self.A.dtype, order="C", copy=False)
        if self.p is None:
            self.correction = xp.zeros((*residual.shape[:-1], n), self.A.dtype)
            self.p, self.ap = xp.zeros_like(self.q), xp.empty_like(self.q)  # step 3
            self.beta: Matrix = np.zeros((width, width), np.complex128)
            return
        self.correction[...] = 0
        self.beta = self._conjugation()
        self.replaced = True

    def start(self) -> None:
        """Nothing: an iteration is done when its estimate is asked for."""

    def estimate(self) -> Vector:
        """Steps 5 to 9. After a replacement Q is orthogonal to the old P only up to rounding, so that alpha
        and S^H are computed from what they have to achieve: P alpha minimises the error, the next P is
        conjugate to this one.
        """
        blas = self.kernels.block_blas
        self._advance_directions()
        self.A.apply(self.p, self.ap)
        self.inverse = _inverse(host_gram(self.kernels, self.p, self.ap), self.rank, self.unit)
        alpha = self.inverse
        if self.replaced:
            alpha = self.inverse @ host_gram(self.kernels, self.p, self.q)
        blas.update(self.correction, self.p, to_device_like(alpha @ self.C, self.p))
        blas.update(self.q, self.ap, to_device_like(-alpha, self.q))
        self.rank, S = orthonormalise(self.kernels, self.q, floor=1.0)
        S = self._narrowed(S)
        self.C = S @ self.C
        self.beta = self._conjugation() if self.replaced else S.conj().T
        self.replaced = False
        return np.sqrt((self.C.real**2 + self.C.imag**2).sum(axis=0))

    def _advance_directions(self) -> None:
        """Step 5: P = Q + P beta; beta is S^H, which may have fewer columns than rows."""
        beta = to_device_like(self.beta, self.q)
        if self.p.shape == self.q.shape:
            self.kernels.block_blas.rotate_add(self.q, self.p, beta, self.p)
            return
        out = array_module(self.q).empty_like(self.q)
        self.p = self.kernels.block_blas.rotate_add(self.q, self.p, beta, out)
        self.ap = array_module(self.q).empty_like(self.q)

    def _narrowed(self, S: Matrix) -> Matrix:
        """S without its zero rows, as far as one of the fixed widths allows; Q likewise."""
        width = next_width(max(self.rank, 1), self.width)
        if width < self.width:
            self.q = array_module(self.q).ascontiguousarray(self.q[..., :width])
        return S[:width]

    def _conjugation(self) -> Matrix:
        """beta = -(P^H A P)^-1 (A P)^H Q: Q + P beta is conjugate to P. In exact arithmetic it is S^H, also
        C C_old^-1 of the paper's equation 6.1, without the inverse of a C that is nearly singular.
        """
        return -self.inverse @ host_gram(self.kernels, self.ap, self.q)


def _inverse(pap: Matrix, rank: int, unit: float) -> Matrix:
    """Step 6 on the leading `rank` rows and columns; directions that are dependent to rounding get no step.

    unit: rounding unit of P. Raises BreakdownError if pap is not finite, or is not positive by more than
    rounding.
    """
    if not np.isfinite(pap).all():
        raise BreakdownError(Status.NOT_FINITE)
    active = pap[:rank, :rank]
    if (active.diagonal().real <= 0).any():
        raise BreakdownError(Status.INDEFINITE)
    _, root, condition = cholesky(active)
    inverse = root @ root.conj().T if condition * unit < 1 / NOISE else _pseudo_inverse(active, unit)
    if rank == len(pap):
        return inverse
    padded = np.zeros_like(pap)
    padded[:rank, :rank] = inverse
    return padded


def _pseudo_inverse(pap: Matrix, unit: float) -> Matrix:
    """Inverse on the eigenvectors of the scaled matrix whose eigenvalues are above rounding."""
    norms = np.sqrt(pap.diagonal().real)
    values, vectors = np.linalg.eigh(pap / np.outer(norms, norms))
    if values[0] < -np.sqrt(unit):
        raise BreakdownError(Status.INDEFINITE)
    above = values > NOISE * unit
    vectors = vectors[:, above] / norms[:, None]
    return (vectors / values[above]) @ vectors.conj().T
