"""Smoothers of multigrid cycles: a few steps with no test of convergence, as polynomials of the operator.

    y = q(A) r,   r - A y = p(A) r,   p(z) = 1 - z q(z) = prod_j (1 - omega_j z)

`PolynomialSmoother` finds the shortest p(A) r of each residual and right-hand side. In exact arithmetic that
is GCR with as many steps, whose fields are read some four times as often: here

    v_0 = r,  v_{j+1} = A v_j,   c: the shortest r - sum_j c_j v_{j+1},   y = sum_j c_j v_j

with all products in one pass over the v_j and both sums in another (the communication-avoiding GCR of
M. Hoemmen, thesis, Berkeley 2010, with powers for a basis). Powers are good for a few steps only, the
directions of many depend on each other within rounding: more steps are several runs, each from the residual
of the one before.

`FittedSmoother` has the p that is shortest on average over residuals that cycles have corrected on the coarse
grid: there are no sums, and all steps are one polynomial. On a GPU an operator of spinors that has `update`
(`stages.lqcd.dirac.wilson_schur.WilsonSchur.update`) makes each of them in one pass, x += omega_j (b - A x),
from root to root in the order of Leja, in which products of a few factors stay small. There x and b have 16
bits and a scale for each site and right-hand side (`stages.lqcd.kernels.short_numbers`): a cycle leaves a
tenth of a residual or so, rounding 2e-5 of x.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import check_whole
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.short_numbers import numbers_like, to_half
from stages.lqcd.solvers.leja import leja_order

MOST_STEPS = 8
"""Of one fitted polynomial: powers of single precision beyond differ by little but rounding."""


class Smoother(Protocol):
    """A few steps that reduce what the coarse grid cannot represent."""

    @property
    def steps(self) -> int:
        """Number of steps."""

    def improve(self, A: LinearOperator, b: Array, x: Array) -> None:
        """Improve x of A x = b by the steps, in place; b is kept."""


def residual_and_room(A: LinearOperator, b: Array, x: Array, powers: int) -> Array:
    """v_0 = b - A x, and room for so many powers v_k = A^k v_0 of it: ``[powers + 1, ..., N]``."""
    v = field_like(x, (powers + 1, *x.shape))
    block_blas.difference(b, A.apply(x, v[1]), v[0])
    return v


@dataclass(frozen=True)
class PolynomialSmoother:
    """`steps` products with the operator, in runs of at most four; each right-hand side by itself."""

    steps: int = 6

    def __post_init__(self) -> None:
        check_whole("steps of a smoother", self.steps, 1)

    @property
    def runs(self) -> tuple[int, ...]:
        """Steps of each run, the longest first."""
        count = -(-self.steps // (lane_blas.MOST_FIELDS - 1))
        return tuple((self.steps + run) // count for run in reversed(range(count)))

    def improve(self, A: LinearOperator, b: Array, x: Array) -> None:
        """Improve x of A x = b by the steps, in place; b is kept."""
        self._run(A, residual_and_room(A, b, x, self.runs[0]), x)

    def improve_by(self, A: LinearOperator, v: Array, x: Array) -> None:
        """`improve` from the residual v_0 = b - A x and its powers v_k = A^k v_0, more than a run takes.

        v ``[k, ..., N]`` changes.
        """
        self._run(A, v, x, powers=len(v) - 1)

    def _run(self, A: LinearOperator, v: Array, y: Array, powers: int = 0) -> None:
        """Add to y what the steps find for the residual v_0, which they change; `powers` of it are there."""
        for steps in self.runs:
            for j in range(powers, steps):
                A.apply(v[j], v[j + 1])
            basis, powers = v[: steps + 1], 0
            c = lane_blas.lane_least_squares(lane_blas.lane_gram(basis))
            lane_blas.lane_polynomial(y, basis, c)


@dataclass(frozen=True)
class FittedSmoother:
    """The steps x += omega_j (b - A x), the same for every right-hand side; at least two."""

    omegas: tuple[complex, ...]
    _coefficients: dict[int, list[Array]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def steps(self) -> int:
        return len(self.omegas)

    @cached_property
    def runs(self) -> list[NDArray[np.complex128]]:
        """Coefficients c_k of q(z) = sum_k c_k z^k of each run of at most `MOST_STEPS` steps."""
        return [_powers_of(run) for run in np.array_split(self.omegas, -(-self.steps // MOST_STEPS))]

    def improve(self, A: LinearOperator, b: Array, x: Array) -> None:
        """Improve x of A x = b by the steps, in place; b is kept."""
        if _in_16_bits(A):
            self._improve_in_16_bits(A, b, x)
            return
        self._run(A, residual_and_room(A, b, x, len(self.runs[0])), x)

    def _improve_in_16_bits(self, A: Any, b: Array, x: Array) -> None:
        source, y = to_half(b), to_half(x)
        between = numbers_like(y)
        *others, last = self.omegas
        for omega in others:
            A.update(y, source, (1, -omega, omega), between, y)
        A.update(y, source, (1, -last, last), between, x)

    def _run(self, A: LinearOperator, v: Array, y: Array) -> None:
        """Add q(A) v_0 to y, and v_0 becomes p(A) v_0; v_k: room for the powers."""
        n = y.shape[-1]
        if n not in self._coefficients:  # no copy from the host in a graph
            columns = [np.repeat(c[:, None], n, axis=1) for c in self.runs]
            self._coefficients[n] = [to_device_like(c, y) for c in columns]
        for c in self._coefficients[n]:
            for j in range(len(c)):
                A.apply(v[j], v[j + 1])
            lane_blas.lane_polynomial(y, v[: len(c) + 1], c)


def _powers_of(omegas: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """c_k of sum_k c_k z^k = (1 - prod_j (1 - omega_j z)) / z."""
    p = np.ones(1, complex)
    for omega in omegas:
        p = np.convolve(p, [1, -omega])
    return -p[1:]


def _in_16_bits(A: LinearOperator) -> bool:
    """Whether steps are taken in 16 bits: not on processors, which it gains nothing."""
    return A.xp is not np and hasattr(A, "update")


RECORDED = 2
"""Blocks of residuals whose moments a grid needs: those of later cycles are alike."""


class Recorder:
    """A smoother that records the moments of the first residuals it is given, if it is polynomial."""

    def __init__(self, smoother: Smoother) -> None:
        self.smoother, self.steps = smoother, smoother.steps
        self.sums: list[Array] = []

    def improve(self, A: LinearOperator, b: Array, x: Array) -> None:
        """Improve x of A x = b by the steps, in place; b is kept."""
        if not isinstance(self.smoother, PolynomialSmoother) or len(self.sums) == RECORDED:
            self.smoother.improve(A, b, x)
            return
        v = residual_and_room(A, b, x, MOST_STEPS)
        for j in range(MOST_STEPS):
            A.apply(v[j], v[j + 1])
        self.sums.append(A.xp.stack([lane_blas.lane_dots(v, power) for power in v], axis=1))
        self.smoother.improve_by(A, v, x)

    @property
    def moments(self) -> NDArray[np.complex128] | None:
        """(A^j r)^H A^k r over |r|^2, the mean over all residuals that do not vanish.

        None where there are none, or none that are finite.
        """
        if not self.sums:
            return None
        sums = np.concatenate([as_numpy(each) for each in self.sums], axis=-1)
        norms2 = sums[0, 0].real
        moments = (sums[..., norms2 > 0] / norms2[norms2 > 0]).mean(axis=-1)
        return moments if np.isfinite(moments).all() else None


def fitted(smoother: Smoother, moments: NDArray[np.complex128] | None) -> Smoother:
    """Another smoother of as many steps as a `PolynomialSmoother` has.

    The one that is given where it is of another kind, or a polynomial of that degree does not follow from
    the moments.
    """
    if moments is None or not isinstance(smoother, PolynomialSmoother) or smoother.steps < 2:
        return smoother
    runs = -(-smoother.steps // MOST_STEPS)
    omegas: list[complex] = []
    for run in range(runs):
        omegas += _best(moments, (smoother.steps + run) // runs)
    if len(omegas) != smoother.steps or not np.isfinite(omegas).all():
        return smoother
    return FittedSmoother(tuple(complex(1 / root) for root in leja_order(1 / np.array(omegas))))


def adjoint(smoother: Smoother) -> Smoother:
    """A smoother for an operator with the complex conjugate spectrum."""
    if not isinstance(smoother, FittedSmoother):
        return smoother
    return FittedSmoother(tuple(omega.conjugate() for omega in smoother.omegas))


def _best(moments: NDArray[np.complex128], degree: int) -> list[complex]:
    """omega_j of the polynomial of this degree that leaves the least on average."""
    G = moments[: degree + 1, : degree + 1]
    c = np.linalg.lstsq(G[1:, 1:], G[1:, 0], rcond=None)[0]
    return list(1 / np.roots([*-c[::-1], 1]))
