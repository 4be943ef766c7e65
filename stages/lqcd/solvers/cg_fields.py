"""The fields of conjugate gradients: in one precision, in 16 bytes a colour vector, or spinors in 16 bits.

All hold the direction p, the residual r, A p and the correction y; `stages.lqcd.solvers.cg` has the formulae.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, application
from stages.lqcd.kernels import block_blas, stream
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, converted, field_like, zeros_like
from stages.lqcd.kernels.half_update import half_dot
from stages.lqcd.kernels.short_numbers import numbers_like, put, take, to_half, to_short


class WholeFields:
    """All ``[..., width]`` of the operator's precision."""

    p: Any
    ap: Any

    def __init__(self, A: LinearOperator, residual: Array) -> None:
        self.A: Any = A
        self.r: Any = self._held(converted(residual, A.dtype))
        self.y = field_like(residual, dtype=A.dtype)

    def _held(self, residual: Array) -> Any:
        return residual

    def begin(self) -> None:
        """Begin with p = 0."""
        self.p, self.ap = zeros_like(self.r), field_like(self.r)

    def go_on(self, p: Any, ap: Any) -> None:
        """Go on with directions as `take` gave them."""
        self.p, self.ap = p, ap

    def replace(self, residual: Array) -> None:
        """This r."""
        put(self.r, residual)

    def take(self, columns: NDArray[np.intp]) -> tuple[Any, Any]:
        """Directions p and A p of these columns."""
        return take(self.p, columns), take(self.ap, columns)

    def norms2(self) -> Array:
        """|r|^2."""
        return block_blas.norms2(self.r)

    def overlap(self, x: Any) -> Array:
        """Re x^H r."""
        return block_blas.dots(x, self.r).real

    def product(self, pap: Array) -> tuple[Callable[[], None], bool]:
        """Function that computes A p and p^H A p, and whether it can be recorded."""
        return application(self.A, self.p, self.ap, pap)

    def recorded(self, step: Callable[[], None]) -> Callable[[], None]:
        """A step on these fields that can be, made cheap to repeat."""
        return stream.recorded(step, self.A.xp)


class ShortFields(WholeFields):
    """All but y, which is complex64, short (`stages.lqcd.kernels.short_numbers`), for staggered operators.

    Directions p have 16 bits; the residual r has 20, and A p, which moves it: what rounding changes there,
    the recurrence cannot know. On 8^3 x 16, m = 0.005, 20 bits cost 3 % of the
    iterations of single precision, 16 bits 5 %, at m = 0.02 none and 7 %.
    """

    def _held(self, residual: Array) -> Any:
        return to_short(residual, 20)

    def begin(self) -> None:
        self.p, self.ap = numbers_like(self.r), numbers_like(self.r, bits=20)
        put(self.p, zeros_like(self.y))

    def recorded(self, step: Callable[[], None]) -> Callable[[], None]:
        return stream.repeated(step, self.A.xp)  # no compiled calls on the host


class HalfFields(WholeFields):
    """All but y, which is complex64, in 16 bits (`stages.lqcd.kernels.short_numbers`), on normal equations.

    A is `stages.lqcd.dirac.operator.HalvedNormal`.
    """

    def _held(self, residual: Array) -> Any:
        return to_half(residual)

    def begin(self) -> None:
        self.p, self.ap = numbers_like(self.r), numbers_like(self.r)
        assign(self.p.scales, 0)

    def norms2(self) -> Array:
        return half_dot(self.r, self.r).real

    def overlap(self, x: Any) -> Array:
        return half_dot(x, self.r).real

    def product(self, pap: Array) -> tuple[Callable[[], None], bool]:
        return self.A.half_application(self.p, self.ap, pap), True

    def recorded(self, step: Callable[[], None]) -> Callable[[], None]:
        return stream.repeated(step, self.A.xp)  # no compiled calls on the host
