"""Noise on a GPU, one thread a site; roots of unity come from a table on the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil

import cupy
import numpy as np
from numpy.typing import DTypeLike

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.fields import empty_field
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, Launch, listed, real_of
from stages.lqcd.kernels.expressions import masked as masked
from stages.lqcd.kernels.expressions import signed as signed
from stages.lqcd.kernels.noise import COLOURS, roots_of, table_bits
from stages.lqcd.lattice.geometry import Lattice


def noise(
    lattice: Lattice, parity: int, key: tuple[int, int], indices: Sequence[int], kind: str, dtype: DTypeLike
) -> cupy.ndarray:
    vectors = empty_field((lattice.half_volume, COLOURS, len(indices)), dtype)
    numbers = cupy.asarray(np.array(indices, np.uint32))
    common = np.int32(len(indices)), np.int32(parity), *map(np.uint32, key)
    if kind == "gaussian":
        run(noise_launch("noise_gaussian", lattice, len(indices), vectors.dtype), vectors, numbers, *common)
    else:
        table = _roots(kind, cupy.cuda.get_device_id())
        kernel = noise_launch("noise_roots", lattice, len(indices), vectors.dtype)
        run(kernel, vectors, numbers, table, np.int32(table_bits(table)), *common)
    return vectors


@cache
def _roots(kind: str, device: int) -> cupy.ndarray:
    """The values of a kind of noise on a device."""
    return cupy.asarray(roots_of(kind))


@cache
def noise_launch(kernel: str, lattice: Lattice, vectors: int, dtype: np.dtype) -> Launch:
    """`noise_roots` or `noise_gaussian` on one parity, a thread per site and vector."""
    elements = lattice.half_volume * vectors
    name, work = f"{kernel}<{real_of(dtype)}, {listed(lattice.extents)}>", RowWork(elements, BLOCK_THREADS)
    return Launch("noise.cu", name, (ceil(elements / BLOCK_THREADS),), BLOCK_THREADS, work=work)
