"""Conjugate gradients, s steps at a time: a basis by products, one Gram matrix, coordinates, one update.

A block of steps is

    1  Y = [rho_0(A) [p, r], ..., rho_s(A) [p, r]]      s products, each of p and r of all right-hand sides
    2  G = Re Y^H Y                                     one pass, one reduction
    3  s steps of conjugate gradients on coordinates x', r', p' in Y          no field is touched
    4  y += Y x',  r = Y r',  p = Y p'                                        one pass

(A. T. Chronopoulos and C. W. Gear, J. Comput. Appl. Math. 25 (1989) 153, with two-term recurrences.) G in
twice the precision of the fields keeps the rate of convergence, and replaced residuals the accuracy
(I. Yamazaki, E. Carson and B. Kelley, IPDPS 2022): the solve around it adds y to x group by group
(`stages.lqcd.solvers.frame`), in the middle of a block where `Deviation` asks for it. Where that is not
asked, a device is given a whole block, as one graph, while the host reads the numbers of the block before;
solves then go on to the end of the block that is under way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.dirac.operator import LinearOperator, Step, Storage
from stages.lqcd.kernels import block_blas, lane_blas, powers, stream
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, copied, field_like, zeros_like
from stages.lqcd.kernels.powers import Coordinates, Report
from stages.lqcd.solvers.krylov import KrylovSolver, iterated
from stages.lqcd.solvers.recurrence import BreakdownError, column_norms
from stages.lqcd.solvers.solution import Solution, SolveOptions, SolveStatus, Vector
from stages.lqcd.solvers.sstep_basis import (
    BASES,
    CHEBYSHEV,
    Numbers,
    Polynomials,
    known_ritz_values,
    polynomials,
)

CONDITION = 1e-5
"""The rounding of a vector of the basis, over the sine of its angle to those before it, stays below this.

With 1e-2 monomials with s = 8 took 1.41 times the iterations of batched CG in double-single (HISQ, 4^4,
m = 0.05), with 1e-4 1.17.
"""
NONZEROS = 7
"""Numbers of x that make one of A x: of order one in the bound, and not known of an operator."""
GROWN = 1.1
"""Growth of the bound of a deviation below which a residual is not replaced again."""


@dataclass(frozen=True)
class SStepCG(KrylovSolver):
    """s-step CG for many right-hand sides, each with its own coefficients.

    s: steps of a block, 1 to 16; fewer are taken where the Gram matrix says that the basis is
    ill-conditioned, and `extras["steps"]` of a solution says how many, block by block. basis: 'monomial',
    'newton' or 'chebyshev', of Ritz values that a short Lanczos run finds once for an operator. replace:
    residuals, where the bound of their deviation asks for it; of solves in one precision, for in mixed
    precision they are replaced as they fall.
    """

    s: int = 4
    basis: str = CHEBYSHEV
    replace: bool = True

    narrows: ClassVar[bool] = True
    update_at: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("s", self.s, 1)
        if self.s > powers.MOST_STEPS:
            raise InputError(f"s must be 1 to {powers.MOST_STEPS} steps, got {self.s}")
        if self.basis not in BASES:
            raise InputError(f"basis must be one of {', '.join(BASES)}, got {self.basis!r}")

    def solve(self, A: LinearOperator, b: Array, **options: Unpack[SolveOptions]) -> Solution:
        self.check_operator(A)
        dtype = np.dtype(np.complex64 if self.precision == "double-single" else A.dtype)
        basis = polynomials(self.basis, self.s, known_ritz_values(A, dtype))
        lengths: list[int] = []
        begin = partial(SStepRecurrence, basis, self.replace and self.precision == "double", lengths)
        solution = iterated(self, begin, A, b, **options)
        return replace(solution, extras={**solution.extras, "steps": lengths})


class Last(NamedTuple):
    """The last direction p ``[..., width]``, A p, and p^H A p ``[width]``: the next is conjugate to it."""

    p: Array
    ap: Array
    curvature: Vector


@dataclass(frozen=True)
class Block:
    """So many steps on the fields of a recurrence: `run` queues 1 to 3, on a device that is ahead also 4."""

    steps: int
    powers: Array
    coordinates: Coordinates
    change: Numbers
    reports: stream.Reports
    run: Step


class SStepRecurrence:
    """Blocks of steps; `step` is that of the block whose numbers the host has.

    replaces: by the bound of the deviation. lengths: of a solve, steps that the Gram matrix of each block
    allowed. The fields are y, the last direction and A times that ``[..., width]`` and paired powers
    ``[steps + 1, ..., 2 width]``, beside them the norms to reach, squared, and where the next step follows a
    replacement, ``[width]``.
    """

    def __init__(
        self,
        basis: Polynomials,
        replaces: bool,
        lengths: list[int],
        storage: Storage,
        residual: Array,
        target: Vector,
        directions: Last | None,
    ) -> None:
        self.storage, self.basis, self.replaces, self.lengths = storage, basis, replaces, lengths
        self.ahead, dtype = bool(stream.lag(storage.operator.xp)) and not replaces, storage.operator.dtype
        shape, width, steps = residual.shape[:-1], residual.shape[-1], len(basis.theta)
        self.powers = field_like(residual, (steps + 1, *shape, 2 * width), dtype)
        self.y = zeros_like(residual, dtype=dtype)
        self.last, self.image = zeros_like(self.y), zeros_like(self.y)
        numbers = zeros_like(residual, (2, width + width % 2), np.float64)
        self.targets2, self.restarted = numbers[0, :width], numbers[1, :width]
        self.curvature = np.zeros(width)
        self.queue = deque[Block]()
        self.step: int = 0
        self.unstarted: int = 0
        if directions is not None:
            assign(self.last, directions.p)
            assign(self.image, directions.ap)
            self.curvature[...] = directions.curvature
        self.block = self._block(steps)
        self._begin(residual, target, replaced=directions is not None)

    def replace(self, residual: Array, target: Vector) -> None:
        self._begin(residual, target, replaced=True)

    def directions(self, columns: NDArray[np.intp]) -> Last:
        last, image = (lane_blas.lane_take(each, columns) for each in (self.last, self.image))
        return Last(last, image, self.curvature[columns])

    @property
    def lag(self) -> int:
        """A device is given the rest of the block that it works on and one block more."""
        if not self.ahead:
            return 0
        left = sum(block.steps for block in self.queue) - self.step
        return left + (self.block.steps if len(self.queue) < 2 else 0) - 1

    @property
    def full(self) -> bool:
        """True if the residual should be replaced before the next step."""
        return bool(self.step and self.wanted[self.step].any())

    @property
    def correction(self) -> Array:
        if self.step and not self.ahead:
            self._fold()
        return self.y

    def start(self) -> int:
        if self.ahead:
            self.unstarted = (self.unstarted or self.block.steps) - 1
            new = self.unstarted == self.block.steps - 1
        else:
            if self.step and self.step == self.length:
                self._fold()
            new = not self.queue
        if not new:
            return 0
        self.block.run()
        self.block.reports.send(self.block.coordinates.report)
        self.queue.append(self.block)
        return 2 * self.block.steps * self.y.shape[-1]

    def estimate(self) -> Vector:
        if self.step == 0:
            self._receive()
        self.step += 1
        norms2, before = (self.report.norms2[step] for step in (self.step, self.step - 1))
        if (self.report.curvatures[self.step] <= 0)[before > self.targets2_on_host].any():
            raise BreakdownError(SolveStatus.INDEFINITE)
        if not np.isfinite(norms2).all():
            raise BreakdownError(SolveStatus.NOT_FINITE)
        if self.ahead and self.step == self.queue[0].steps:
            self._end()
        return np.sqrt(np.maximum(norms2, 0))

    def _block(self, steps: int) -> Block:
        """A block of so many steps."""
        fields, change = self.powers[: steps + 1], self.basis.change(steps)
        coordinates = Coordinates.empty(fields, change, self.targets2, self.restarted)
        least = float(np.finfo(fields.dtype).eps) ** 2 / CONDITION**2
        parts = _products(self.storage, fields, self.basis)
        parts.append(partial(powers.gram, fields, coordinates))
        parts.append(partial(powers.conjugate_gradients, coordinates, least))
        if self.ahead:
            parts.append(self._update_of(fields, coordinates, steps))

        def step() -> None:
            for part in parts:
                part()

        reports, run = stream.reports(coordinates.report), self.storage.repeated(step)
        return Block(steps, fields, coordinates, change, reports, run)

    def _update_of(self, fields: Array, coordinates: Coordinates, step: int) -> Step:
        """Step 4, after so many steps of a block."""
        return partial(powers.update, self.y, fields, self.last, self.image, coordinates, step)

    def _begin(self, residual: Array, target: Vector, replaced: bool) -> None:
        """From y = 0 with a residual that the last direction, if any, does not know: p = r + beta p_last."""
        for block in self.queue:
            block.reports.discard()
        self.queue.clear()
        self.step = self.unstarted = 0
        width = self.y.shape[-1]
        assign(self.y, 0)
        assign(self.powers[0, ..., width:], residual)
        p = copied(self.powers[0, ..., width:])
        norms = column_norms(p)
        if replaced:
            beta = -as_numpy(block_blas.dots(self.image, p)).real
            beta = quotient(beta, self.curvature, self.curvature > 0)
            lane_blas.lane_add(p, self.last, to_device_like(beta, p))
        assign(self.powers[0, ..., :width], p)
        self.targets2_on_host = target**2
        self.targets2[...] = to_device_like(self.targets2_on_host, p)
        self.restarted[...] = float(replaced)
        eps, norm = float(np.finfo(p.dtype).eps) / 2, self.basis.norm
        # x is in units of the residual, and no larger than |b| / |A| times its condition
        self.deviation = Deviation(eps, norm, norms / norm, norms)

    def _receive(self) -> None:
        """The numbers of the oldest block that is under way."""
        block = self.queue[0]
        self.report = Report.of(block.reports.receive())
        self.length = int(self.report.allowed.min())
        self.lengths.append(self.length)
        self.wanted = np.zeros((block.steps + 1, 1), bool)
        if self.replaces:
            norms2 = self.report.norms2
            magnitudes = as_numpy(powers.magnitudes(block.powers))
            x, r = (as_numpy(each) for each in (block.coordinates.x, block.coordinates.r))
            norms = np.sqrt(np.maximum(norms2, 0))
            self.wanted = self.deviation.block(magnitudes, block.change, x, r, norms)
            self.wanted &= norms2 > self.targets2_on_host
        if self.length < self.block.steps and not self.unstarted:  # shorter blocks follow one that was cut
            self.block = self._block(self.length)

    def _fold(self) -> None:
        """Step 4, after as many steps as were taken."""
        block = self.queue[0]
        self._update_of(block.powers, block.coordinates, self.step)()
        if self.replaces:
            self.deviation.advance(self.step)
        self._end()

    def _end(self) -> None:
        """The oldest block is done with."""
        taken = np.minimum(self.report.taken, self.step)
        curvature = self.report.curvatures[taken, np.arange(len(taken))]
        self.curvature = np.where(taken > 0, curvature, self.curvature)
        self.queue.popleft()
        self.step = 0


def _products(storage: Storage, vectors: Array, of: Polynomials) -> list[Step]:
    """Steps that make one power after another."""
    products = list[Step]()
    for i in range(len(vectors) - 1):
        theta, sigma, gamma = (float(each[i]) for each in (of.theta, of.sigma, of.gamma))
        products.append(storage.product(vectors[i], vectors[i + 1], None, -theta / gamma, 1 / gamma))
        if sigma:
            products.append(partial(powers.add_earlier, vectors, i, -sigma / gamma))
    return products


class Deviation:
    """A bound d ``[N]`` of |b - A x - r|, in units of the residuals when it began.

    E. Carson and J. Demmel, SIAM J. Matrix Anal. Appl. 35 (2014) 22, eqs. (4.7) to (4.9): every step adds

        eps [ (4 + N') ( |A| || |Y| |x'| || + || |Y| |B| |x'| || + || |Y| |r'| || ) ]

    from the sums of magnitudes |Y|^T |Y|. The residual is replaced where d outgrows sqrt(eps) |r|, unless it
    has hardly grown since it was replaced last.

    eps: rounding of the fields. norm: |A|. x, r: norms ``[N]`` of both when it began.
    """

    def __init__(self, eps: float, norm: float, x: Numbers, r: Numbers) -> None:
        self.eps, self.norm = eps, norm
        self.bound = eps * ((1 + 2 * NONZEROS) * norm * x + r)
        self.began = self.bound.copy()
        self.grown = self.bound[np.newaxis]

    def block(
        self, magnitudes: Numbers, change: Numbers, x: Numbers, r: Numbers, norms: Numbers
    ) -> NDArray[np.bool_]:
        """True where the residual should be replaced after a step of a block, bool ``[steps + 1, N]``.

        magnitudes: |Y|^T |Y| ``[N, K, K]``. x, r: coordinates ``[steps + 1, N, K]``. norms: |r|
        ``[steps + 1, N]``.
        """
        sizes = self._size(magnitudes, x) * self.norm
        sizes += self._size(magnitudes, np.abs(x) @ np.abs(change).T)
        sizes += self._size(magnitudes, r)
        growth = self.eps * (4 + NONZEROS) * sizes
        growth[0] = 0
        self.grown = self.bound + np.cumsum(growth, axis=0)
        return (self.grown > np.sqrt(self.eps) * norms) & (self.grown > GROWN * self.began)

    def advance(self, steps: int) -> None:
        """A block ends after so many of its steps."""
        self.bound = self.grown[steps]

    @staticmethod
    def _size(magnitudes: Numbers, coordinates: Numbers) -> Numbers:
        """|| |Y| |c| || of coordinates ``[steps + 1, N, K]``."""
        c = np.abs(coordinates)
        return np.sqrt(np.maximum(np.einsum("snj,njk,snk->sn", c, magnitudes, c), 0))
