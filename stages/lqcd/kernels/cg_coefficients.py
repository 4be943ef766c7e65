"""The numbers of a batched CG step: one of each for every right-hand side, kept where the fields are."""

from __future__ import annotations

from dataclasses import dataclass

from stages.lqcd.kernels.dispatch import Array, array_module

ROWS = ("r2", "pap", "target2", "gamma", "alpha", "beta")
"""Order of the rows in memory, which `cg_update.cu` relies on."""


@dataclass(frozen=True)
class CGCoefficients:
    """|r|^2, p^H A p, the |r|^2 to reach, p^H r, and the coefficients alpha and beta: float64 ``[N]`` each.

    They are views of one array `numbers`, float64 ``[6, N rounded up to even]``: rows start on 16 bytes.
    """

    numbers: Array
    rhs: int

    @classmethod
    def zeros(cls, like: Array) -> CGCoefficients:
        """All zero, for the right-hand sides of the field `like`, ``[..., N]``."""
        rhs = like.shape[-1]
        return cls(array_module(like).zeros((len(ROWS), rhs + rhs % 2)), rhs)

    @property
    def r2(self) -> Array:
        return self._row("r2")

    @property
    def pap(self) -> Array:
        return self._row("pap")

    @property
    def target2(self) -> Array:
        return self._row("target2")

    @property
    def gamma(self) -> Array:
        return self._row("gamma")

    @property
    def alpha(self) -> Array:
        return self._row("alpha")

    @property
    def beta(self) -> Array:
        return self._row("beta")

    def _row(self, name: str) -> Array:
        return self.numbers[ROWS.index(name), : self.rhs]


def quotient(numerator: Array, denominator: Array, where: Array) -> Array:
    """numerator / denominator, zero outside the mask `where`."""
    xp = array_module(denominator)
    return xp.where(where, numerator / xp.where(where, denominator, 1), 0)
