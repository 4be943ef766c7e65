"""Conjugate gradients that take s steps between two reductions (`stages.lqcd.solvers.sstep.recurrence`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import powers
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.solvers.krylov import KrylovSolver, iterated
from stages.lqcd.solvers.solution import Progress, Solution
from stages.lqcd.solvers.space import Correction
from stages.lqcd.solvers.sstep.block import Ingredients
from stages.lqcd.solvers.sstep.polynomials import BASES, CHEBYSHEV, polynomials
from stages.lqcd.solvers.sstep.recurrence import Log, ingredients_of
from stages.lqcd.solvers.sstep.spectrum import known_ritz_values

ABOVE = 1.05
"""|A| is at most this times the largest Ritz value."""


@dataclass(frozen=True)
class SStepCG(KrylovSolver):
    """s-step CG for many right-hand sides, each with its own coefficients.

    s: steps of a block, 1 to 16. basis: 'monomial', 'newton' or 'chebyshev', of Ritz values. gram: precision
    of the Gram matrix, 'working', 'double' or 'double-double'; None: twice that of the vectors. replace:
    residuals, where the bound of their deviation asks for it; of solves in one precision, for in mixed
    precision they are replaced as they fall. guard: takes fewer steps where the Gram matrix says that the
    basis is ill-conditioned; `extras` of a solution says how many, block by block. ritz: Ritz values of the
    operator, ascending; found by a short Lanczos run unless given.
    """

    s: int = 4
    basis: str = CHEBYSHEV
    gram: str | None = None
    replace: bool = True
    guard: bool = True
    ritz: tuple[float, ...] | None = None

    narrows: ClassVar[bool] = True
    update_at: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.s <= powers.MOST_STEPS:
            raise InputError(f"s must be 1 to {powers.MOST_STEPS} steps, got {self.s}")
        if self.basis not in BASES:
            raise InputError(f"basis must be one of {', '.join(BASES)}, got {self.basis!r}")
        if self.gram is not None and self.gram not in powers.PRECISIONS:
            raise InputError(f"gram must be one of {', '.join(powers.PRECISIONS)}, got {self.gram!r}")

    def solve(
        self,
        A: LinearOperator,
        b: Array,
        x0: Array | None = None,
        on_failure: str = "raise",
        progress: Progress | None = None,
        deflate: Correction | None = None,
    ) -> Solution:
        self.check_operator(A)
        log = Log()
        begin = ingredients_of(self.ingredients(A), log)
        solution = iterated(self, begin, A, b, x0, on_failure, progress, deflate)
        notes: dict[str, Any] = {"steps": log.lengths, "deviations": log.deviations}
        return replace(solution, extras={**solution.extras, **notes})

    def ingredients(self, A: LinearOperator) -> Ingredients:
        """The parts of the method for an operator, in the inner precision."""
        dtype = np.dtype(np.complex64 if self.precision == "double-single" else A.dtype)
        single = dtype == np.complex64
        ritz = np.array(self.ritz) if self.ritz else known_ritz_values(A, dtype)
        return Ingredients(
            polynomials(self.basis, self.s, ritz),
            self.s,
            self.gram or (powers.DOUBLE if single else powers.DOUBLED),
            ABOVE * float(ritz[-1]),
            self.replace and self.precision == "double",
            self.guard,
        )
