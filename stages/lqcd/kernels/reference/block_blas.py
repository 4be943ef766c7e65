"""Matrix products in double, of copies."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module


def gram(x: Array, y: Array) -> Array:
    return _rows(x).astype(np.complex128).conj().T @ _rows(y).astype(np.complex128)


def dots(x: Array, y: Array) -> Array:
    return (_rows(x).astype(np.complex128).conj() * _rows(y)).sum(axis=0)


def norms2(x: Array) -> Array:
    rows = _rows(x).astype(np.complex128)
    return (rows.real**2 + rows.imag**2).sum(axis=0)


def rotate(x: Array, a: Array, out: Array) -> Array:
    _rows(out)[...] = _rows(x) @ _coefficients(a, x)
    return out


def rotate_add(q: Array, p: Array, a: Array, out: Array) -> Array:
    _rows(out)[...] = _rows(q) + _rows(p) @ _coefficients(a, q)
    return out


def _rows(block: Array) -> Array:
    return block.reshape(-1, block.shape[-1])


def _coefficients(a: Array, block: Array) -> Array:
    return array_module(block).asarray(a).astype(block.dtype)
