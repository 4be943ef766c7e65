"""M = 2 m + D on both parities, and the system of its even sites."""

from __future__ import annotations

from dataclasses import dataclass, replace

from numpy.typing import DTypeLike

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import MadeOf
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, field_like
from stages.lqcd.lattice.geometry import EVEN, ODD


@dataclass(frozen=True)
class StaggeredOperator(MadeOf):
    """M = 2 m + D on the full lattice, ``[parity, site, 3, N]``."""

    dslash: StaggeredDslash
    mass: float

    hermitian = False
    positive_definite = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (2, self.dslash.lattice.half_volume, 3)

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = field_like(x) if out is None else out
        for parity in (EVEN, ODD):
            self.apply_to(parity, x, out[parity])
        return out

    def apply_to(self, parity: int, x: Array, out: Array) -> Array:
        """M x on the sites of a parity, ``[site, 3, N]``; returns `out`."""
        return self.dslash.apply_to(parity, x[1 - parity], out, x[parity], 2 * self.mass, 1.0)

    def astype(self, dtype: DTypeLike) -> StaggeredOperator:
        return replace(self, dslash=self.dslash.astype(dtype))


@dataclass(frozen=True)
class StaggeredSchur:
    """The system of the even sites that stands for M x = b.

        (4 m^2 - D_eo D_oe) x_e = 2 m b_e - D_eo b_o,   x_o = (b_o - D_oe x_e) / (2 m)

    The relative residual of M x = b is up to |D| / (2 m) larger than that of the system. Fields are
    ``[parity, site, 3, N]``. Raises InputError for m <= 0.
    """

    M: StaggeredOperator

    @property
    def operator(self) -> NormalOperator:
        """4 m^2 - D_eo D_oe."""
        return NormalOperator(self.M.dslash, self.M.mass, EVEN)

    def prepare(self, b: Array) -> tuple[Array, Array]:
        """The right-hand side ``[site, 3, N]``, and b. Raises InputError for another field."""
        M = self.M
        if b.ndim != 4 or b.shape[:3] != M.shape or b.dtype != M.dtype:
            raise InputError(
                f"a right-hand side of this operator is {M.dtype} {(*M.shape, 'N')}, got {b.dtype} {b.shape}"
            )
        return M.dslash.apply_to(EVEN, b[ODD], None, b[EVEN], 2 * M.mass, -1.0), b

    def reconstruct(self, x: Array, b: Array) -> Array:
        """Solution x ``[parity, site, 3, N]`` from that of the even sites."""
        M, scale = self.M, 1 / (2 * self.M.mass)
        full = field_like(b)
        assign(full[EVEN], x)
        M.dslash.apply_to(ODD, full[EVEN], full[ODD], b[ODD], scale, -scale)
        return full
