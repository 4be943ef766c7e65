"""Paired powers of an operator, their Gram matrices, and conjugate gradients on coordinates in them.

Paired powers are an array ``[steps + 1, ..., 2 N]``, C-contiguous: the fields rho_i(A) [p | r], with p of N
right-hand sides in the first columns and r in the others, so that one product makes a power of both. Those
of a right-hand side, which never mixes with another, are numbered p_0 ... p_steps, r_0 ... r_{steps - 1}:
2 steps + 1 vectors. Coordinates in them are real, because the coefficients of conjugate gradients are: of
x^H y its real part is needed. Small results lie where the fields do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel, to_device_like
from stages.lqcd.kernels.operands import check_array, check_blocks

MOST_STEPS = 16

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Coordinates:
    """The Gram matrix of paired powers, and conjugate gradients on coordinates in them; not filled at first.

    high, low: real parts of x_j^H x_k of each right-hand side, the sum of two float64 ``[N, K, K]``.
    x, r, p: coordinates before each step, float64 ``[steps + 1, N, K]``; a right-hand side stays as it is
    after the steps that it took.
    report: float64 ``[2 steps + 4, N]``, rows |r|^2 before each step, p^H A p of the step that leads there,
    steps taken, steps that the Gram matrix allowed.
    change: float64 ``[K, K]`` with A x_k = sum_j x_j change[j, k] for those k that occur; tridiagonal.
    targets2: float64 ``[N]``, |r|^2 at which a right-hand side stays as it is.
    restarted: float64 ``[N]``, not zero where p^H r is not |r|^2, as after a replacement of r; the
    coefficients of the first step are then those that minimise along p and make directions conjugate.
    doubled: steps are taken in twice double, as those of double vectors, and in double otherwise; on a
    processor always in the longest float of NumPy.
    copies: of x, r, p, report and change, those of each GPU that shares the lattice, which takes the steps
    for itself.
    """

    high: Array
    low: Array
    x: Array
    r: Array
    p: Array
    report: Array
    change: Array
    targets2: Array
    restarted: Array
    doubled: bool
    copies: list[tuple[Array, ...]] = field(default_factory=list, repr=False)

    @classmethod
    def empty(cls, powers: Array, change: Numbers, targets2: Array, restarted: Array) -> Coordinates:
        """Arrays for these paired powers, and what is given."""
        xp, steps, rhs = array_module(powers), len(powers) - 1, powers.shape[-1] // 2
        size = 2 * steps + 1
        high, low = (xp.empty((rhs, size, size)) for _ in range(2))
        x, r, p = (xp.empty((steps + 1, rhs, size)) for _ in range(3))
        report, change = xp.empty((2 * steps + 4, rhs)), to_device_like(change, powers)
        return cls(high, low, x, r, p, report, change, targets2, restarted, powers.dtype == np.complex128)


class Report(NamedTuple):
    """`Coordinates.report` on the host: norms2, curvatures ``[steps + 1, N]``, taken and allowed ``[N]``."""

    norms2: Numbers
    curvatures: Numbers
    taken: NDArray[np.intp]
    allowed: NDArray[np.intp]

    @classmethod
    def of(cls, numbers: Numbers) -> Report:
        steps = len(numbers) // 2 - 2
        counts = numbers[-2:].astype(np.intp)
        return cls(numbers[: steps + 1], numbers[steps + 1 : 2 * steps + 2], *counts)


def add_earlier(powers: Array, i: int, factor: float) -> None:
    """``powers[i + 1] += factor powers[i - 1]``, the third term of a recurrence.

    powers[i + 1] is what the operator has just made of powers[i], and nobody has read it.
    """
    check_powers(powers)
    kernel("powers.add_earlier", type(powers))(powers, i, factor)


def gram(powers: Array, out: Coordinates) -> None:
    """Re x_j^H x_k for all pairs of each right-hand side, in one pass, in twice the precision of the fields.

    Of single vectors in double; of double ones by error-free transformations (T. J. Dekker, Numer. Math. 18
    (1971) 224), on a processor of slabs of the fields, split into four parts of 19 bits, whose products a
    library sums in double without error, as K. Ozaki, T. Ogita, S. Oishi and S. M. Rump, Numer. Algorithms 59
    (2012) 95, split matrices; they are added in the longest float of NumPy. Raises InputError.
    """
    check_powers(powers)
    kernel("powers.gram", type(powers))(powers, out)


def magnitudes(powers: Array) -> Array:
    """Sums of |x_j| |x_k| over components, float64 ``[N, K, K]``, in working precision or better."""
    check_powers(powers)
    return kernel("powers.magnitudes", type(powers))(powers)


def conjugate_gradients(coordinates: Coordinates, least: float) -> None:
    """Steps of conjugate gradients on coordinates, from x = 0, p = p_0 and r = r_0.

    least: a right-hand side takes as many steps as come before the first p_i whose squared sine of the angle
    to those before it is below this; all, where it is zero.
    """
    kernel("powers.conjugate_gradients", type(coordinates.high))(coordinates, least)


def update(y: Array, powers: Array, last: Array, image: Array, coordinates: Coordinates, step: int) -> None:
    """``y += x``, then r and p into powers[0] and the direction before p and A times that, in one pass.

    All of what the coordinates say of them after so many steps, or of the fewer that a right-hand side has
    taken; one that has taken none keeps what it has. y, last, image: ``[..., N]``. `restarted` is set to zero
    where a step has been taken.
    """
    check_powers(powers)
    for name, each in (("y", y), ("last", last), ("image", image)):
        check_array(name, each, (*powers.shape[1:-1], powers.shape[-1] // 2), powers.dtype)
    kernel("powers.update", type(y))(y, powers, last, image, coordinates, step)


def check_powers(powers: Array) -> None:
    """Raise InputError unless these are paired powers of 1 to `MOST_STEPS` steps."""
    check_blocks(powers=powers)
    if powers.ndim < 3 or powers.shape[-1] % 2 or not 1 <= len(powers) - 1 <= MOST_STEPS:
        raise InputError(
            f"paired powers are an array (2 to {MOST_STEPS + 1} powers, ..., twice the right-hand sides), "
            f"got shape {powers.shape}"
        )
