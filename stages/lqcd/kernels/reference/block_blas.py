"""Linear algebra on blocks of right-hand sides: arrays ``[..., N]`` seen as tall-skinny matrices ``[L, N]``.

Blocks are complex64 or complex128, C-contiguous; small results complex128 or float64 in the block's library.
"""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_array, check_blocks, check_coefficients


def gram(x: Array, y: Array) -> Array:
    """x^H y, complex128 ``[Nx, Ny]``."""
    check_blocks(x=x, y=y)
    return _rows(x).astype(np.complex128).conj().T @ _rows(y).astype(np.complex128)


def dots(x: Array, y: Array) -> Array:
    """conj(x) . y of each right-hand side, complex128 ``[N]``."""
    check_blocks(x=x)
    check_array("y", y, x.shape, x.dtype)
    return (_rows(x).astype(np.complex128).conj() * _rows(y)).sum(axis=0)


def norms2(x: Array) -> Array:
    """|x|^2 of each right-hand side, float64 ``[N]``."""
    check_blocks(x=x)
    rows = _rows(x).astype(np.complex128)
    return (rows.real**2 + rows.imag**2).sum(axis=0)


def update(y: Array, x: Array, a: Array) -> None:
    """y += x a in place, with a complex ``[Nx, Ny]``."""
    rotate_add(y, x, a, y)


def rotate(x: Array, a: Array, out: Array) -> Array:
    """out = x a, with a complex ``[Nx, Nout]``; `out` may be `x` if the shapes agree. Returns `out`."""
    check_blocks(x=x, out=out)
    check_coefficients(a, x, out)
    _rows(out)[...] = _rows(x) @ _coefficients(a, x)
    return out


def rotate_add(q: Array, p: Array, a: Array, out: Array) -> Array:
    """out = q + p a, with a complex ``[Np, Nq]``; `out` may be `q`, or `p` if shapes agree. Returns `out`."""
    check_blocks(q=q, p=p)
    check_array("out", out, q.shape, q.dtype)
    check_coefficients(a, p, q)
    _rows(out)[...] = _rows(q) + _rows(p) @ _coefficients(a, q)
    return out


def _rows(block: Array) -> Array:
    return block.reshape(-1, block.shape[-1])


def _coefficients(a: Array, block: Array) -> Array:
    return array_module(block).asarray(a).astype(block.dtype)
