"""An iteration of block CGrQ: its sums, small algebra and pass over the blocks.

The method is `stages.lqcd.solvers.block_cgrq`.

Blocks ``[..., w]`` are the orthonormal Q, the directions P and A P; X is ``[..., N]`` of their precision, or
in double: then P a.x is computed in double, too. On a GPU nothing here waits for the host, and what is not
ordinary stops itself: all can be queued ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike

from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.operands import check_array, check_blocks

DRIFT = 1e-2
"""An iteration is ordinary while Q^H Q, as measured and as predicted, is that close to one."""

CONDITION = 1 / 32
"""An iteration is ordinary while the condition of P^H A P times the rounding unit is below this."""


@dataclass(frozen=True)
class BlockCoefficients:
    """Matrices of a block of width w for N right-hand sides; all complex128 but the last.

    grams ``[3, w, w]``: P^H A P, (A P)^H A P, Q^H Q. c ``[w, N]``: C. x ``[w, N]``: alpha C. q (upper
    triangular), ap, p ``[w, w]``: T, -alpha T, beta. target, float64 ``[N]``: norms to reach. remains,
    float64 ``[w]``: the product of the diagonals of all S of these coefficients. summary, float64 ``[2 +
    N]``: 1 if the iteration is an ordinary one, the least element of `remains` of the rows of the new C that
    hold more than the target in any column, and the norms of its columns; if the first is 0, x, q, ap and p
    mean nothing.
    """

    grams: Array
    c: Array
    x: Array
    q: Array
    ap: Array
    p: Array
    target: Array
    remains: Array
    summary: Array
    _buffers: dict[tuple[str, tuple[int, ...]], Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, c: Array, target: Array, like: Array) -> BlockCoefficients:
        """Coefficients with copies of this C and these norms to reach, in the library of `like`."""
        xp, (w, n) = array_module(like), c.shape
        squares, rows = xp.zeros((6, w, w), np.complex128), xp.zeros((2, w, n), np.complex128)
        rows[0] = xp.asarray(c)
        numbers = xp.array(target, float), xp.ones(w), xp.ones(2 + n)
        return cls(squares[:3], rows[0], rows[1], squares[3], squares[4], squares[5], *numbers)

    def workspace(self, purpose: str, shape: tuple[int, ...], dtype: DTypeLike = np.complex128) -> Array:
        """Room of this shape, the same array whenever it is asked for: a captured graph may hold it."""
        key = purpose, shape
        if key not in self._buffers:
            self._buffers[key] = array_module(self.c).empty(shape, dtype)
        return self._buffers[key]


def repeatable(width: int, dtype: DTypeLike, xp: ModuleType) -> bool:
    """True if the functions below keep the rules of `stream.repeated` on blocks of this width in `xp`."""
    return kernel("block_cg.repeatable", xp.ndarray)(width, np.dtype(dtype))


def iteration_grams(p: Array, ap: Array, q: Array, a: BlockCoefficients) -> None:
    """P^H A P, (A P)^H A P and Q^H Q, all Hermitian, into a.grams."""
    _check_step(a, p=p, ap=ap, q=q)
    kernel("block_cg.iteration_grams", type(p))(p, ap, q, a)


def step_coefficients(a: BlockCoefficients, rank: int, unit: float) -> None:
    """The coefficients that follow from a.grams and a.c.

    a.c becomes the new C, and a.remains follows S, if the iteration is ordinary.

    rank: columns of the blocks and rows of C that are not zero; unit: rounding unit of the blocks.
    """
    kernel("block_cg.step_coefficients", type(a.c))(a, rank, unit)


def block_step(x: Array, q: Array, p: Array, ap: Array, a: BlockCoefficients) -> None:
    """X += P a.x, Q = Q a.q + A P a.ap, P = Q + P a.p in place; nothing at all unless it is ordinary."""
    _check_step(a, x=x, q=q, p=p, ap=ap)
    kernel("block_cg.block_step", type(x))(x, q, p, ap, a)


def _check_step(a: BlockCoefficients, *, p: Array, **blocks: Array) -> None:
    """Raise InputError unless p, q, ap are blocks of one shape and dtype, x has their rows, and `a` fits."""
    check_blocks(p=p)
    width, rhs = a.c.shape
    for name, block in {"p": p, **blocks}.items():
        if name == "x":
            check_array(name, block, (*p.shape[:-1], rhs), np.result_type(p.dtype, block.dtype))
        else:
            check_array(name, block, (*p.shape[:-1], width), p.dtype)
