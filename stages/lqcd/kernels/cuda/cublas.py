"""Products of cuBLAS on row-major matrices where they lie.

It sees row-major ``[R, k]`` as column-major ``[k, R]``: x^H y is computed as its transpose y^T conj(x), and
V C as C^T V^T.
"""

from __future__ import annotations

from collections.abc import Sequence

import cupy
import numpy as np


def gemm(
    kind: str,
    dtype: np.dtype,
    sizes: tuple[int, int, int],
    a: Sequence[int],
    b: Sequence[int],
    c: Sequence[int],
    *,
    adjoint: bool = False,
    beta: int = 0,
) -> None:
    """CuBLAS' ``c = a b + beta c``, or ``a b^H`` if `adjoint`, of column-major matrices, unchecked.

    kind: of the call, '', 'Batched' or 'StridedBatched'. sizes: m, n and the length of sums. a, b, c: address
    and leading dimension, further the stride of 'StridedBatched'; c also the number of products of a batch.
    """
    from cupy.cuda import cublas  # loads a large library that nothing else here needs

    one, factor = np.array(1, dtype), np.array(beta, dtype)
    transposed = cublas.CUBLAS_OP_C if adjoint else cublas.CUBLAS_OP_N
    call = getattr(cublas, f"{'z' if dtype == np.complex128 else 'c'}gemm{kind}")
    call(
        *(cupy.cuda.device.get_cublas_handle(), cublas.CUBLAS_OP_N, transposed, *sizes),
        *(one.ctypes.data, *a, *b, factor.ctypes.data, *c),
    )
