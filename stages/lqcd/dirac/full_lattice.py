"""M = 2 m + D on both parities, and its solves through the even sites."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stages.lqcd.dirac.operator import Solver
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.kernels.dispatch import Array, array_module, to_host
from stages.lqcd.lattice.errors import InputError
from stages.lqcd.lattice.geometry import EVEN, ODD


@dataclass(frozen=True)
class StaggeredOperator:
    """M = 2 m + D on the full lattice, ``[parity, site, 3, N]``; its adjoint 2 m - D has `sign` = -1."""

    dslash: StaggeredDslash
    mass: float
    sign: int = 1

    hermitian = False
    positive_definite = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (2, self.dslash.lattice.half_volume, 3)

    @property
    def dtype(self) -> np.dtype:
        return self.dslash.dtype

    @property
    def adjoint(self) -> StaggeredOperator:
        return replace(self, sign=-self.sign)

    @property
    def flops(self) -> float:
        return 2 * self.dslash.flops + 12 * self.dslash.lattice.volume

    def bytes(self, rhs: int) -> float:
        diagonal = 3 * self.dtype.itemsize * self.dslash.lattice.volume
        return 2 * self.dslash.bytes(rhs) + diagonal

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = array_module(x).empty_like(x) if out is None else out
        for parity in (EVEN, ODD):
            diagonal = x[parity]
            self.dslash.apply_to(
                parity, x[1 - parity], out[parity], diagonal, 2 * self.mass, float(self.sign)
            )
        return out

    def astype(self, dtype: Any) -> StaggeredOperator:
        return replace(self, dslash=self.dslash.astype(dtype))

    def solve(self, solver: Solver, b: Array, x0: Array | None = None, **options: Any) -> Any:
        """x of M x = b through the even sites, as a `Solution` whose ``x`` is ``[parity, site, 3, N]``.

            (4 m^2 - D_eo D_oe) x_e = 2 m b_e - s D_eo b_o,   x_o = (b_o - s D_oe x_e) / (2 m),   s = sign

        The solver's tolerance and `residual` are those of the even system; ``extras["full_residual"]`` is
        |b - M x| / |b| per right-hand side, which is up to |D| / (2 m) larger. `options` go to the solver.
        Raises InputError for m <= 0 or a wrong field, and what the solver raises.
        """
        normal = NormalOperator(self.dslash, self.mass, EVEN)
        self._require_field(b)
        source = self.dslash.apply_to(EVEN, b[ODD], None, b[EVEN], 2 * self.mass, -float(self.sign))
        solution = solver.solve(normal, source, None if x0 is None else x0[EVEN], **options)
        x = array_module(b).empty_like(b)
        x[EVEN] = solution.x
        scale = 1 / (2 * self.mass)
        self.dslash.apply_to(ODD, x[EVEN], x[ODD], b[ODD], scale, -self.sign * scale)
        return replace(solution, x=x, extras={**solution.extras, "full_residual": self.residual(x, b)})

    def residual(self, x: Array, b: Array) -> np.ndarray:
        """|b - M x| / |b| of each right-hand side, float64 ``[N]``; 0 where b and x vanish."""
        self._require_field(b)
        difference = self.apply(x)
        difference -= b
        norms2 = self.dslash.kernels.block_blas.norms2
        missed, source = (np.sqrt(to_host(norms2(f.reshape(-1, *f.shape[2:])))) for f in (difference, b))
        return missed / np.where(source > 0, source, 1)

    def _require_field(self, b: Array) -> None:
        if b.ndim != 4 or b.shape[:3] != self.shape or b.dtype != self.dtype:
            raise InputError(
                f"a right-hand side of this operator is {self.dtype} {(*self.shape, 'N')}, "
                f"got {b.dtype} {b.shape}"
            )
