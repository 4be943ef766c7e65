"""Linear algebra on blocks of right-hand sides: arrays ``[..., N]`` seen as tall-skinny matrices ``[L, N]``.

Blocks are complex64 or complex128, C-contiguous, N up to 64 on a GPU; small results are complex128 or float64
where the block is. Sums are added in double in an order that depends on shapes alone. Raises InputError for
operands that do not fit each other.
"""

from __future__ import annotations

from types import ModuleType

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.operands import check_array, check_blocks, check_coefficients
from stages.lqcd.kernels.short_numbers import Vectors, whole


def widest(xp: ModuleType) -> int:
    """The most columns of a block that kernels for arrays of `xp` take."""
    return kernel("block_blas.widest", xp.ndarray)()


def gram(x: Array, y: Array) -> Array:
    """x^H y, complex128 ``[Nx, Ny]``."""
    check_blocks(x=x, y=y)
    return kernel("block_blas.gram", type(x))(x, y)


def dots(x: Vectors, y: Vectors) -> Array:
    """conj(x) . y of each right-hand side, complex128 ``[N]``; short fields as complex64."""
    x, y = whole(x), whole(y)
    check_blocks(x=x)
    check_array("y", y, x.shape, x.dtype)
    return kernel("block_blas.dots", type(x))(x, y)


def norms2(x: Vectors) -> Array:
    """|x|^2 of each right-hand side, float64 ``[N]``; of a short field as complex64."""
    x = whole(x)
    check_blocks(x=x)
    return kernel("block_blas.norms2", type(x))(x)


def update(y: Array, x: Array, a: Array) -> None:
    """``y += x a`` in place, with a complex ``[Nx, Ny]``."""
    check_blocks(y=y, x=x)
    check_coefficients(a, x, y)
    kernel("block_blas.rotate_add", type(y))(y, x, a, y)


def rotate(x: Array, a: Array, out: Array) -> Array:
    """``out = x a``, with a complex ``[Nx, Nout]``; `out` may be `x` if the shapes agree. Returns `out`."""
    check_blocks(x=x, out=out)
    check_coefficients(a, x, out)
    return kernel("block_blas.rotate", type(x))(x, a, out)


def rotate_add(q: Array, p: Array, a: Array, out: Array) -> Array:
    """``out = q + p a``, with a complex ``[Np, Nq]``; `out` may be `q`, or `p` if shapes agree.

    Returns `out`.
    """
    check_blocks(q=q, p=p)
    check_array("out", out, q.shape, q.dtype)
    check_coefficients(a, p, q)
    return kernel("block_blas.rotate_add", type(q))(q, p, a, out)


def difference(x: Array, y: Array, out: Array) -> Array:
    """``out = x - y``. Returns `out`, which may be either."""
    if not x.shape == y.shape == out.shape:
        raise InputError(f"x {x.shape}, y {y.shape} and out {out.shape} must have one shape")
    return kernel("block_blas.difference", type(x))(x, y, out)


def add(y: Array, x: Array) -> None:
    """``y += x`` in place; x may be of lower precision."""
    if x.shape != y.shape:
        raise InputError(f"x {x.shape} and y {y.shape} must have one shape")
    kernel("block_blas.add", type(y))(y, x)


def scale(x: Array, factor: float, out: Array) -> Array:
    """``out = factor x`` with a number rounded to the precision of x. Returns `out`, which may be `x`."""
    if x.shape != out.shape:
        raise InputError(f"x {x.shape} and out {out.shape} must have one shape")
    return kernel("block_blas.scale", type(x))(x, float(factor), out)


def affine(out: Array, b: float, x: Array, a: float) -> None:
    """``out = b out + a x`` in place."""
    if x.shape != out.shape:
        raise InputError(f"x {x.shape} and out {out.shape} must have one shape")
    kernel("block_blas.affine", type(x))(out, b, x, a)


def norms(x: Array) -> Array:
    """|x| of each right-hand side, float64 ``[N]``."""
    return array_module(x).sqrt(norms2(x))
