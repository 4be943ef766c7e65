"""Conjugate gradients, s steps at a time: a basis by the operator, one Gram matrix, coordinates, one update.

A block of steps is

    1  Y = [rho_0(A) [p, r], ..., rho_s(A) [p, r]]      s products, each of p and r of all right-hand sides
    2  G = Re Y^H Y                                     one pass, one reduction
    3  s steps of conjugate gradients on coordinates x', r', p' in Y          no field is touched
    4  y += Y x',  r = Y r',  p = Y p'                                        one pass

(A. T. Chronopoulos and C. W. Gear, J. Comput. Appl. Math. 25 (1989) 153, with two-term recurrences.) G in
twice the precision of the fields keeps the rate of convergence, and replaced residuals the accuracy
(I. Yamazaki, E. Carson and B. Kelley, IPDPS 2022): the solve around it adds y to x group by group
(`stages.lqcd.solvers.frame`), in the middle of a block where `stages.lqcd.solvers.sstep.deviation`
asks for it. Where that is not asked, a device is given a whole block, as one graph, while the host reads the
numbers of the block before; solves then go on to the end of the block that is under way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, Storage
from stages.lqcd.kernels import block_blas, lane_blas, powers, stream
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, copied
from stages.lqcd.solvers.recurrence import Begin, BreakdownError, Directions, column_norms
from stages.lqcd.solvers.solution import SolveStatus, Vector
from stages.lqcd.solvers.sstep.block import Block, Fields, Ingredients
from stages.lqcd.solvers.sstep.deviation import Deviation


@dataclass
class Log:
    """Notes of all blocks of a solve."""

    lengths: list[int] = field(default_factory=list)
    """Steps that the Gram matrix of each block allowed."""
    deviations: int = 0
    """Residuals replaced because the bound of their deviation asked for it."""


class Last(NamedTuple):
    """The last direction p ``[..., width]``, A p, and p^H A p ``[width]``: the next is conjugate to it."""

    p: Array
    ap: Array
    curvature: Vector


class SStepRecurrence:
    """Blocks of steps; `step` is that of the block whose numbers the host has."""

    def __init__(
        self,
        A: LinearOperator,
        residual: Array,
        target: Vector,
        directions: Last | None,
        parts: Ingredients,
        log: Log,
    ) -> None:
        self.A, self.parts, self.log = A, parts, log
        self.ahead = bool(stream.lag(A.xp)) and not parts.replace
        self.fields = Fields(residual, parts.steps, A.dtype)
        self.curvature = np.zeros(residual.shape[-1])
        self.queue = deque[Block]()
        self.step: int = 0
        self.unstarted: int = 0
        if directions is not None:
            assign(self.fields.last, directions.p)
            assign(self.fields.image, directions.ap)
            self.curvature[...] = directions.curvature
        self.block = Block(A, self.fields, parts, parts.steps, self.ahead)
        self._begin(residual, target, replaced=directions is not None)

    def replace(self, residual: Array, target: Vector) -> None:
        self._begin(residual, target, replaced=True)

    def directions(self, columns: NDArray[np.intp]) -> Last:
        last, image = (lane_blas.lane_take(each, columns) for each in (self.fields.last, self.fields.image))
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
            self.log.deviations += self.full
            self._fold()
        return self.fields.y

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
        self.block.start()
        self.queue.append(self.block)
        return 2 * self.block.steps * self.fields.y.shape[-1]

    def estimate(self) -> Vector:
        if self.step == 0:
            self._receive()
        self.step += 1
        norms2, before = (self.report.norms2[step] for step in (self.step, self.step - 1))
        if (self.report.curvatures[self.step] <= 0)[before > self.targets2].any():
            raise BreakdownError(SolveStatus.INDEFINITE)
        if not np.isfinite(norms2).all():
            raise BreakdownError(SolveStatus.NOT_FINITE)
        if self.ahead and self.step == self.queue[0].steps:
            self._end()
        return np.sqrt(np.maximum(norms2, 0))

    def _begin(self, residual: Array, target: Vector, replaced: bool) -> None:
        """From y = 0 with a residual that the last direction, if any, does not know: p = r + beta p_last."""
        of = self.fields
        for block in self.queue:
            block.reports.discard()
        self.queue.clear()
        self.step = self.unstarted = 0
        assign(of.y, 0)
        assign(of.r, residual)
        p = copied(of.r)
        norms = column_norms(p)
        if replaced:
            beta = -as_numpy(block_blas.dots(of.image, p)).real
            beta = quotient(beta, self.curvature, self.curvature > 0)
            lane_blas.lane_add(p, of.last, to_device_like(beta, p))
        assign(of.p, p)
        self.targets2 = target**2
        of.targets2[...] = to_device_like(self.targets2, p)
        of.restarted[...] = float(replaced)
        eps = float(np.finfo(p.dtype).eps) / 2
        # x is in units of the residual, and no larger than |b| / |A| times its condition
        self.deviation = Deviation(eps, self.parts.norm, norms / self.parts.norm, norms)

    def _receive(self) -> None:
        """The numbers of the oldest block that is under way."""
        block = self.queue[0]
        self.report = block.receive()
        self.length = int(self.report.allowed.min())
        self.log.lengths.append(self.length)
        self.wanted = np.zeros((block.steps + 1, 1), bool)
        if self.parts.replace:
            norms2 = self.report.norms2
            magnitudes = as_numpy(powers.magnitudes(block.powers))
            x, r = (as_numpy(each) for each in (block.path.x, block.path.r))
            norms = np.sqrt(np.maximum(norms2, 0))
            self.wanted = self.deviation.block(magnitudes, block.change, x, r, norms)
            self.wanted &= norms2 > self.targets2
        if self.length < self.block.steps and not self.unstarted:  # shorter blocks follow one that was cut
            self.block = Block(self.A, self.fields, self.parts, self.length, self.ahead)

    def _fold(self) -> None:
        """Step 4, after as many steps as were taken."""
        self.queue[0].update(self.step)
        if self.parts.replace:
            self.deviation.advance(self.step)
        self._end()

    def _end(self) -> None:
        """The oldest block is done with."""
        taken = np.minimum(self.report.taken, self.step)
        curvature = self.report.curvatures[taken, np.arange(len(taken))]
        self.curvature = np.where(taken > 0, curvature, self.curvature)
        self.queue.popleft()
        self.step = 0


def ingredients_of(parts: Ingredients, log: Log) -> Begin:
    """`KrylovSolver.begin` with these."""

    def begin(storage: Storage, residual: Array, target: Vector, directions: Directions) -> SStepRecurrence:
        return SStepRecurrence(storage.operator, residual, target, directions, parts, log)

    return begin
