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

from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import Step, Storage
from stages.lqcd.kernels import block_blas, block_cg, stream
from stages.lqcd.kernels.block_cg import BlockCoefficients
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, contiguous, converted, copied, field_like, zeros_like
from stages.lqcd.kernels.host_lapack import Matrix, cholesky
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.orthonormal import NOISE, host_gram, orthonormalise
from stages.lqcd.solvers.recurrence import BreakdownError, Directions, Recurrence, next_width
from stages.lqcd.solvers.solution import SolveStatus, Vector

REMAINS = 0.03
"""What may be left of a combination of right-hand sides, by the diagonals of S, before the residuals are
replaced in mixed precision. What rounding has added since the last time is then still below that combination
and perturbs its direction a little; later it would be the direction. Combinations below the tolerance do not
count.
"""

TOLERATED_AT_FIRST, TOLERATED = 0.1, 0.01
"""Disturbance of the residual in mixed precision, where rounding disturbs it, too: at the start by N vectors
of N right-hand sides, growing with the root of vectors over columns; and later.
"""

SPOILED, REDUCED, REDUCED_MORE = 0.02, 3e3, 8
"""Disturbance in one precision that costs what N vectors save N right-hand sides: of the residual at the
start, growing with the power 1.5 of vectors over columns; later, over the norm to reach, with this power.
Fits to solves to 1e-10 and 1e-12 on 8^3x8 and 8^3x16, of 4 to 48 columns and 8 to 64 vectors.
"""


@dataclass(frozen=True)
class BlockCGrQ(KrylovSolver):
    """Block CGrQ: fewer iterations than `BatchedCG`, most so for large blocks and small masses.

    In exact arithmetic the dimension divided by the block size bounds the iterations. The linear algebra of a
    step grows with the block size: N = 16 to 32 is a good choice.
    """

    update_at: ClassVar[float] = 1e-3
    """Of columns, in deflated solves in one precision; in mixed precision `REMAINS` asks earlier."""

    def tolerates(self, relative: float, reduction: float, share: float, first: bool) -> bool:
        """True if a correction in a deflation space saves more iterations than its disturbance costs.

        In one precision that is a question of how far the disturbance has to be reduced, from the beginning.
        It costs the less, and deflation saves the more, the more vectors there are for each column.
        """
        if self.precision != "double":
            return relative <= (TOLERATED_AT_FIRST * share**0.5 if first else TOLERATED)
        if first:
            return relative <= SPOILED * share**1.5
        return reduction <= REDUCED * share**REDUCED_MORE

    def begin(self, storage: Storage, residual: Array, target: Vector, directions: Directions) -> Recurrence:
        return _BlockRecurrence(storage, residual, target)


class _BlockRecurrence:
    """Q, P, A P ``[..., w]`` of the inner precision, C ``[w, N]``, and the correction ``[..., N]``.

    The correction has the precision of the residual, because what rounding it leaves out is multiplied by A
    in the next true residual: in single precision it would be most of what a replacement finds. w is the rank
    of the residual block, rounded up to one of the fixed widths; what is beyond it is zero.
    known: norms of the iteration begun last, where they will not be reported.
    """

    lag = 0  # the pass over the blocks hides the host

    def __init__(self, storage: Storage, residual: Array, target: Vector) -> None:
        self.storage, self.target = storage, target
        self.A = A = storage.operator
        self.unit = float(np.finfo(A.dtype).eps)
        self.low = A.dtype != residual.dtype
        C = self._decompose(residual)
        self.correction = zeros_like(residual)
        self.p, self.ap, self.active = copied(self.q), field_like(self.q), self.rank  # steps 3, 5
        self._renew(C)
        self.reports = stream.reports(self.coefficients.summary)
        self.known: list[Vector] = []
        self.replaced = False

    @property
    def full(self) -> bool:
        """True if a combination of right-hand sides has fallen so far that rounding takes its place."""
        return self.low and self.remains < REMAINS

    def replace(self, residual: Array, target: Vector) -> None:
        self.target = target
        self._renew(self._decompose(residual))
        assign(self.correction, 0)
        self.replaced = True

    def directions(self, columns: NDArray[np.intp]) -> None:
        """No column leaves by itself."""

    def start(self) -> int:
        """Steps 6 to 9, and step 5 of the next iteration."""
        products = self.p.shape[-1]
        if self.replaced:
            self.A.apply(self.p, self.ap)
            self.known.append(self._step_by_step())
        else:
            predict, sweep = self.ordinary
            predict()
            self.reports.send(self.coefficients.summary)
            sweep()
        return products

    def estimate(self) -> Vector:
        if self.known:
            return self.known.pop()
        ordinary, self.remains, *norms = self.reports.receive()
        return np.array(norms) if ordinary else self._step_by_step()

    def _decompose(self, residual: Array) -> Matrix:
        """Steps 1 and 2, in the outer precision; returns C."""
        self.rank, C = orthonormalise(residual)
        width = next_width(max(self.rank, 1), residual.shape[-1])
        self.q = converted(residual[..., :width], self.A.dtype)
        return C[:width]

    def _renew(self, C: Matrix) -> None:
        """Coefficients for this C, and other arrays than those of the iteration before."""
        self.coefficients = BlockCoefficients.of(C, self.target, self.q)
        self.remains = 1.0
        self.__dict__.pop("ordinary", None)

    @cached_property
    def ordinary(self) -> tuple[Step, Step]:
        """An ordinary iteration on the arrays of now, in two parts.

        Up to the coefficients, and the pass over the blocks. Where the prediction is not accurate, the second
        leaves them as they are.
        """
        a, xp = self.coefficients, self.A.xp
        apply = self.storage.product(self.p, self.ap)
        predict = partial(_predict, apply, self.p, self.ap, self.q, a, self.rank, self.unit)
        sweep = partial(block_cg.block_step, self.correction, self.q, self.p, self.ap, a)
        if not (self.storage.repeatable and block_cg.repeatable(self.p.shape[-1], self.A.dtype, xp)):
            return predict, sweep
        return stream.repeated(predict, xp), stream.repeated(sweep, xp)

    def _step_by_step(self) -> Vector:
        """An iteration for any Q, from P and A P.

        After a replacement Q is orthogonal to the old P only up to rounding, and may have another width, so
        that alpha and S^H are computed from what they have to achieve: P alpha C minimises the error, the
        next P is conjugate to this one.
        """
        inverse = _inverse(host_gram(self.p, self.ap), self.active, self.unit)
        alpha, C = inverse @ host_gram(self.p, self.q), as_numpy(self.coefficients.c)
        p = converted(self.p, self.correction.dtype)
        block_blas.update(self.correction, p, to_device_like(alpha @ C, p))
        block_blas.update(self.q, self.ap, to_device_like(-alpha, self.q))
        self.rank, S = orthonormalise(self.q, floor=1.0)
        C = self._narrowed(S) @ C
        self._advance_directions(-inverse @ host_gram(self.ap, self.q))
        self._renew(C)
        self.replaced = False
        return np.sqrt((C.real**2 + C.imag**2).sum(axis=0))

    def _advance_directions(self, beta: Matrix) -> None:
        """Step 5: P = Q + P beta; beta is S^H, which may have fewer columns than rows."""
        out = self.p if self.p.shape == self.q.shape else field_like(self.q)
        block_blas.rotate_add(self.q, self.p, to_device_like(beta, self.q), out)
        if out is not self.p:
            self.p, self.ap = out, field_like(out)
        self.active = self.rank

    def _narrowed(self, S: Matrix) -> Matrix:
        """S without its zero rows, as far as one of the fixed widths allows; Q likewise."""
        width = next_width(max(self.rank, 1), self.q.shape[-1])
        if width < self.q.shape[-1]:
            self.q = contiguous(self.q[..., :width])
        return S[:width]


def _predict(
    apply: Step,
    p: Array,
    ap: Array,
    q: Array,
    coefficients: BlockCoefficients,
    rank: int,
    unit: float,
) -> None:
    """A P, and the coefficients of an ordinary iteration."""
    apply()
    block_cg.iteration_grams(p, ap, q, coefficients)
    block_cg.step_coefficients(coefficients, rank, unit)


def _inverse(pap: Matrix, rank: int, unit: float) -> Matrix:
    """Step 6 on the leading `rank` rows and columns; directions that are dependent to rounding get no step.

    unit: rounding unit of P. Raises BreakdownError if pap is not finite, or is not positive by more than
    rounding.
    """
    if not np.isfinite(pap).all():
        raise BreakdownError(SolveStatus.NOT_FINITE)
    active = pap[:rank, :rank]
    if (active.diagonal().real <= 0).any():
        raise BreakdownError(SolveStatus.INDEFINITE)
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
        raise BreakdownError(SolveStatus.INDEFINITE)
    above = values > NOISE * unit
    vectors = vectors[:, above] / norms[:, None]
    return (vectors / values[above]) @ vectors.conj().T
