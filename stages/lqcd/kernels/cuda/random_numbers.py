"""Noise, one thread a site, with roots of unity from a table; random blocks, one thread an element."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import Any

import cupy
import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import elementwise, segments_of
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.fields import empty_field
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, MULTIPROCESSORS, Launch, listed, real_of
from stages.lqcd.kernels.random_numbers import COLOURS, first_counter, roots_of, table_bits
from stages.lqcd.kernels.transfer import to_device
from stages.lqcd.lattice.geometry import Lattice

MASKED = cupy.ElementwiseKernel(
    "int64 columns, int64 width, int32 vector, int32 subset, raw T eta, int32 member",
    "T out",
    "out = member == subset ? eta[i / columns * width + vector] : T(0)",
    "masked",
)
SIGNED = cupy.ElementwiseKernel("T x, int8 sign", "T out", "out = sign < 0 ? -x : x", "signed_columns")


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


def masked(eta: cupy.ndarray, member: NDArray, vectors: NDArray, subsets: NDArray) -> cupy.ndarray:
    out = empty_field((*eta.shape[:2], len(vectors)), eta.dtype)
    places: Any = to_device(member.astype(np.int32, copy=False))
    columns = tuple(cupy.asarray(numbers, np.int32) for numbers in (vectors, subsets))
    elementwise(_masked, eta, places[..., None], out, small=columns)
    return out


def _masked(
    vectors: cupy.ndarray, subsets: cupy.ndarray, eta: cupy.ndarray, member: cupy.ndarray, out: cupy.ndarray
) -> None:
    MASKED(out.shape[-1], eta.shape[-1], vectors, subsets, eta, member, out)


def signed(eta: cupy.ndarray, signs: NDArray) -> cupy.ndarray:
    out = empty_field((*eta.shape, signs.shape[1]), eta.dtype)
    table: Any = to_device(signs.astype(np.int8))
    elementwise(SIGNED, eta[..., None], table[:, None, None], out)
    return out.reshape(*eta.shape[:2], -1)


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


def fill_random(block: cupy.ndarray, seed: int, draw: int) -> None:
    if block.size:
        kernel = fill_random_launch(block.size, block.dtype, segments_of(block.reshape(-1)))
        run(kernel, block, np.uint64(block.size), first_counter(seed, draw))


@cache
def fill_random_launch(elements: int, dtype: np.dtype, segments: int = 1) -> Launch:
    """Random numbers, on a grid that fills the device; segments: in which a field's sites lie."""
    blocks = min(ceil(elements / BLOCK_THREADS), 16 * MULTIPROCESSORS)
    work = RowWork(elements // segments, segments=segments)
    return Launch("random_block.cu", f"fill_random<{real_of(dtype)}>", (blocks,), BLOCK_THREADS, work=work)
