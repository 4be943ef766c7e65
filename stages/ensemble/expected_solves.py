"""Solves that an operator is expected to be used for, which say what room it and its solves take."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import numpy as np

from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.solvers.trial import Candidate


@dataclass(frozen=True)
class ExpectedSolves:
    """Solver, precision and block of the solves that an operator is made for.

    solver: a name of `stages.lqcd.solvers.named`, or 'auto'. precision: 'double', 'double-single' or
    'double-half'. block: right-hand sides that are solved together.

    A stage that makes an operator takes it to lay out its links: it alters no result beyond rounding inside
    solvers, and is in no key.
    """

    solver: str = "auto"
    precision: str = "double-single"
    block: int = 16

    @property
    def packing(self) -> Packing:
        """Packing of the operator's links on a GPU."""
        return Packing.of(self.block, self.precision)

    @property
    def dtypes(self) -> tuple[type[np.complexfloating], ...]:
        """Precisions of arrays to which the operator is applied."""
        single = self.precision == "double-single" or (
            self.precision == "double-half" and self.solver == "auto"
        )
        return (np.complex128, np.complex64) if single else (np.complex128,)

    @property
    def wilson_dtypes(self) -> tuple[type[np.complexfloating], ...]:
        """`dtypes` of an operator of Wilson type, which takes fields in 16 bits as it is in single."""
        return (np.complex128,) if self.precision == "double" else (np.complex128, np.complex64)


ANY_SOLVES = ExpectedSolves()
SOLVES = tuple(field.name for field in fields(ExpectedSolves))
"""What of it no key has."""


Operator = TypeVar("Operator", StaggeredDslash, WilsonOperator)


@dataclass
class Layouts(Generic[Operator]):
    """An operator with links laid out for one candidate after the other, as those of a campaign are."""

    operator: Operator
    _last: tuple[Packing, Operator] | None = None

    def of(self, candidate: Candidate) -> Operator:
        """The operator for a candidate, that of the one before given up; on a CPU the operator itself."""
        if self.operator.xp is np:
            return self.operator
        packing = Packing.of(candidate.block, candidate.precision)
        if self._last is None or self._last[0] != packing:
            self._last = packing, self.operator.laid_out(packing)
        return self._last[1]
