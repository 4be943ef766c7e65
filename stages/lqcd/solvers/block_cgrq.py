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

An ordinary iteration takes one reduction, and reads or writes 10 blocks beside A. As Q^H A P = P^H A P, the
Gram matrix of step 8 is

    (Q S)^H Q S = alpha^H (A P)^H A P alpha - M,   M = Q^H Q,   alpha = (P^H A P)^-1 M,   beta = M^-1 S^H,

so that S, T = S^-1 and all else follow from sums over P, A P and Q, and steps 7, 8 and the next 5 are one
pass. M is predicted to be one. It is measured with the sums of the next iteration, and the measured one
stands in alpha, beta and the Gram matrix: without it rounding would grow from one iteration to the next. (For
one right-hand side: G. Meurant, Parallel Comput. 5 (1987) 267; T. Chen, E. Carson, arXiv:1905.01549.) Where
the prediction would lose accuracy, an iteration takes the steps one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, application
from stages.lqcd.kernels.block_coefficients import BlockCoefficients
from stages.lqcd.kernels.cholesky import Matrix, cholesky
from stages.lqcd.kernels.dispatch import Array, Kernels, array_module, to_device_like, to_host
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.orthonormal import NOISE, host_gram, orthonormalise
from stages.lqcd.solvers.recurrence import BreakdownError, Recurrence, Vector
from stages.lqcd.solvers.reliable import next_width
from stages.lqcd.solvers.solution import Status


@dataclass(frozen=True)
class BlockCGrQ(KrylovSolver):
    """Block CGrQ: fewer iterations than `BatchedCG`, most so for large blocks and small masses.

    In exact arithmetic the dimension divided by the block size bounds the iterations. The linear algebra of a
    step grows with the block size: N = 16 to 32 is a good choice.
    """

    def recurrence(self, A: LinearOperator, kernels: Kernels) -> Recurrence:
        return _BlockRecurrence(A, kernels)


class _BlockRecurrence:
    """Q, P, A P ``[..., w]`` of the inner precision and C ``[w, N]``.

    w is the rank of the residual block, rounded up to one of the fixed widths; what is beyond it is zero.
    Residuals are replaced less often than in batched CG: those combinations of right-hand sides that have
    converged furthest become noise in a replaced block, and their search directions are lost with them.
    """

    narrows = full = False
    update_at = 1e-3
    lag = 0  # the pass over the blocks hides the host

    def __init__(self, A: LinearOperator, kernels: Kernels) -> None:
        self.A, self.kernels = A, kernels
        self.unit = float(np.finfo(A.dtype).eps)
        self.p: Array = None
        self.coefficients: BlockCoefficients
        self.reports: Any = None
        self.done: Vector | None = None
        """Norms of the iteration begun last, if they are known and will not be reported."""
        self.predict: Any = None
        self.sweep: Any = None
        self.replaced = False

    @property
    def width(self) -> int:
        return self.p.shape[-1]

    def replace(self, residual: Array, target: Vector, kept: NDArray[np.intp] | None) -> None:
        n = residual.shape[-1]
        self.rank, C = orthonormalise(self.kernels, residual)  # steps 1, 2; in the outer precision
        width = next_width(max(self.rank, 1), n)
        self.q = residual[..., :width].astype(self.A.dtype, order="C", copy=False)
        self.coefficients = BlockCoefficients.of(C[:width], self.q)
        self.predict = None
        if self.p is None:
            xp = array_module(residual)
            self.correction = xp.zeros((*residual.shape[:-1], n), self.A.dtype)
            self.p, self.ap, self.directions = self.q.copy(), xp.empty_like(self.q), self.rank  # steps 3, 5
            self.reports = self.kernels.stream.Reports(self.coefficients.summary)
            return
        self.correction[...] = 0
        self.replaced = True

    def start(self) -> None:
        """Steps 6 to 9, and step 5 of the next iteration."""
        if self.replaced:
            self.A.apply(self.p, self.ap)
            self.done = self._step_by_step()
            return
        if self.predict is None:
            self._make_parts()
        self.predict()
        self.reports.send(self.coefficients.summary)
        self.sweep()

    def estimate(self) -> Vector:
        if self.done is not None:
            norms, self.done = self.done, None
            return norms
        ordinary, *norms = self.reports.receive()
        return np.array(norms) if ordinary else self._step_by_step()

    def _make_parts(self) -> None:
        """An ordinary iteration on the arrays of now, in two parts: up to the coefficients, and the pass over
        the blocks. Where the prediction is not accurate, the second leaves them as they are.
        """
        block_cg, repeated, a = self.kernels.block_cg, self.kernels.stream.repeated, self.coefficients
        apply, repeatable = application(self.A, self.kernels, self.p, self.ap)
        self.predict = partial(
            _predict, self.kernels, apply, self.p, self.ap, self.q, a, self.rank, self.unit
        )
        self.sweep = partial(block_cg.block_step, self.correction, self.q, self.p, self.ap, a)
        if repeatable and block_cg.repeatable(self.width, self.A.dtype):
            self.predict, self.sweep = repeated(self.predict), repeated(self.sweep)

    def _step_by_step(self) -> Vector:
        """The same for any Q, from P and A P. After a replacement Q is orthogonal to the old P only up to
        rounding, and may have another width, so that alpha and S^H are computed from what they have to
        achieve: P alpha C minimises the error, the next P is conjugate to this one.
        """
        blas = self.kernels.block_blas
        inverse = _inverse(host_gram(self.kernels, self.p, self.ap), self.directions, self.unit)
        alpha, C = inverse @ host_gram(self.kernels, self.p, self.q), to_host(self.coefficients.c)
        blas.update(self.correction, self.p, to_device_like(alpha @ C, self.p))
        blas.update(self.q, self.ap, to_device_like(-alpha, self.q))
        self.rank, S = orthonormalise(self.kernels, self.q, floor=1.0)
        C = self._narrowed(S) @ C
        self._advance_directions(-inverse @ host_gram(self.kernels, self.ap, self.q))
        self.coefficients = BlockCoefficients.of(C, self.q)
        self.predict, self.replaced = None, False
        return np.sqrt((C.real**2 + C.imag**2).sum(axis=0))

    def _advance_directions(self, beta: Matrix) -> None:
        """Step 5: P = Q + P beta; beta is S^H, which may have fewer columns than rows."""
        out = self.p if self.p.shape == self.q.shape else array_module(self.q).empty_like(self.q)
        self.kernels.block_blas.rotate_add(self.q, self.p, to_device_like(beta, self.q), out)
        if out is not self.p:
            self.p, self.ap = out, array_module(out).empty_like(out)
        self.directions = self.rank

    def _narrowed(self, S: Matrix) -> Matrix:
        """S without its zero rows, as far as one of the fixed widths allows; Q likewise."""
        width = next_width(max(self.rank, 1), self.q.shape[-1])
        if width < self.q.shape[-1]:
            self.q = array_module(self.q).ascontiguousarray(self.q[..., :width])
        return S[:width]


def _predict(
    kernels: Kernels,
    apply: Callable[[], None],
    p: Array,
    ap: Array,
    q: Array,
    coefficients: BlockCoefficients,
    rank: int,
    unit: float,
) -> None:
    """A P, and the coefficients of an ordinary iteration."""
    apply()
    kernels.block_cg.iteration_grams(p, ap, q, coefficients)
    kernels.block_cg.step_coefficients(coefficients, rank, unit)


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
