"""Linear algebra on blocks of right-hand sides: arrays ``[..., N]`` seen as tall-skinny matrices ``[L, N]``.

Blocks are complex64 or complex128, C-contiguous, N up to 64; small results complex128 or float64. Sums are
added in double in a fixed order.
"""

from __future__ import annotations

import cupy
import numpy as np

from stages.kernels.cuda import launch
from stages.kernels.cuda.compile import run
from stages.lattice.errors import InputError

CUBLAS_COLUMNS = 16
"""From this width on a double Gram matrix goes through cuBLAS, which uses double-precision tensor cores."""


def gram(x: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    """x^H y, complex128 ``[Nx, Ny]``."""
    rows, nx, ny = _shared_rows(x, y)
    if x.dtype == np.complex128 and min(nx, ny) >= CUBLAS_COLUMNS:
        return _gram_cublas(x, y, rows)
    kernel = launch.gram(nx, ny, x.dtype, rows)
    partials = cupy.empty((kernel.grid[0], nx, ny), np.complex128)
    run(kernel, x, y, partials, np.int64(rows))
    return sum_partials(partials)


def _gram_cublas(x: cupy.ndarray, y: cupy.ndarray, rows: int) -> cupy.ndarray:
    """x^H y as y x^H of the column-major transposes that cuBLAS sees; x.conj() would cost a copy."""
    from cupy.cuda import cublas  # loads a large library that nothing else here needs

    nx, ny = x.shape[-1], y.shape[-1]
    result = cupy.empty((nx, ny), np.complex128)
    one, zero = np.array(1, np.complex128), np.array(0, np.complex128)
    cublas.zgemm(
        *(cupy.cuda.device.get_cublas_handle(), cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_C, ny, nx, rows),
        *(one.ctypes.data, y.data.ptr, ny, x.data.ptr, nx),
        *(zero.ctypes.data, result.data.ptr, ny),
    )
    return result


def dots(x: cupy.ndarray, y: cupy.ndarray) -> cupy.ndarray:
    """conj(x) . y of each right-hand side, complex128 ``[N]``."""
    return slice_dots(x, y, 1)[0]


def slice_dots(x: cupy.ndarray, y: cupy.ndarray, slices: int) -> cupy.ndarray:
    """conj(x) . y of each right-hand side over `slices` equal runs of rows, complex128 ``[slices, N]``."""
    rows, n, ny = _shared_rows(x, y)
    if n != ny:
        raise InputError(f"dot products need as many right-hand sides in x as in y, got {n} and {ny}")
    kernel = launch.rows_kernel("dots.cu", "dot_partials", n, x.dtype, rows // slices, slices)
    partials = cupy.empty((kernel.grid[0], slices, n), np.complex128)
    run(kernel, x, y, partials, np.int64(rows // slices))
    return sum_partials(partials)


def norms2(x: cupy.ndarray) -> cupy.ndarray:
    """|x|^2 of each right-hand side, float64 ``[N]``."""
    rows, n = _rows(x)
    kernel = launch.rows_kernel("dots.cu", "norm_partials", n, x.dtype, rows)
    partials = cupy.empty((kernel.grid[0], n))
    run(kernel, x, partials, np.int64(rows))
    return sum_partials(partials)


def sum_partials(partials: cupy.ndarray) -> cupy.ndarray:
    """Sum over the first axis of a float64 or complex128 array, in a fixed order."""
    sums = cupy.empty(partials.shape[1:], partials.dtype)
    count = sums.size * (partials.itemsize // 8)
    run(launch.sum_partials(count), partials, sums, np.int32(len(partials)), np.int32(count))
    return sums


def update(y: cupy.ndarray, x: cupy.ndarray, a: cupy.ndarray) -> None:
    """y += x a in place, with a complex ``[Nx, Ny]``."""
    _multiply_add(x, a, y, y)


def rotate(x: cupy.ndarray, a: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    """out = x a, with a complex ``[Nx, Nout]``; `out` may be `x` if the shapes agree. Returns `out`."""
    _multiply_add(x, a, None, out)
    return out


def rotate_add(q: cupy.ndarray, p: cupy.ndarray, a: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    """out = q + p a, with a complex ``[Np, Nq]``; `out` may be `q`, or `p` if shapes agree. Returns `out`."""
    _shared_rows(q, out)
    _multiply_add(p, a, q, out)
    return out


def _multiply_add(x: cupy.ndarray, a: cupy.ndarray, base: cupy.ndarray | None, out: cupy.ndarray) -> None:
    rows, nx, ny = _shared_rows(x, out)
    coefficients = cupy.ascontiguousarray(cupy.asarray(a, np.complex128))
    if coefficients.shape != (nx, ny):
        raise InputError(
            f"coefficients between these blocks have shape ({nx}, {ny}), got {coefficients.shape}"
        )
    kernel = launch.multiply_add(nx, ny, x.dtype, rows)
    run(kernel, x, coefficients, np.uintp(0) if base is None else base, out, np.int64(rows))


def _shared_rows(x: cupy.ndarray, y: cupy.ndarray) -> tuple[int, int, int]:
    """Rows, Nx and Ny of two blocks; InputError unless rows and precision agree."""
    (rows, nx), (rows_y, ny) = _rows(x), _rows(y)
    if rows != rows_y or x.dtype != y.dtype:
        raise InputError(
            f"blocks must agree in rows and precision, got {x.dtype} {x.shape} and {y.dtype} {y.shape}"
        )
    return rows, nx, ny


def _rows(block: cupy.ndarray) -> tuple[int, int]:
    """Rows L and width N of a block; InputError unless it is complex and C-contiguous."""
    if block.dtype not in (np.complex64, np.complex128) or not block.flags.c_contiguous:
        raise InputError(
            f"a block must be complex64 or complex128 and C-contiguous, got {block.dtype} "
            f"of shape {block.shape}, strides {block.strides}"
        )
    n = block.shape[-1]
    return block.size // n, n
