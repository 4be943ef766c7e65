"""Noise, one thread a site, with roots of unity from a table; random blocks, one thread an element."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import Any

import cupy
import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.kernels import expressions
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import segments_of
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.fields import empty_field
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, MULTIPROCESSORS, Launch, listed, real_of
from stages.lqcd.kernels.cuda.pointwise import TYPES, start
from stages.lqcd.kernels.random_numbers import COLOURS, first_counter, roots_of, table_bits
from stages.lqcd.kernels.transfer import to_device
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


def masked(eta: cupy.ndarray, member: NDArray, vectors: NDArray, subsets: NDArray) -> cupy.ndarray:
    out = empty_field((*eta.shape[:2], len(vectors)), eta.dtype)
    places: Any = to_device(member.astype(np.int32, copy=False))
    columns = [cupy.asarray(numbers, np.int32) for numbers in (vectors, subsets)]
    pointers = [np.uintp(array.data.ptr) for array in (places, *columns)]
    fields = out, cupy.ascontiguousarray(eta)
    if not start("masked", (TYPES[eta.dtype.char],), fields, *pointers, columns=len(vectors)):
        return expressions.masked(eta, member, vectors, subsets)
    return out


def signed(eta: cupy.ndarray, signs: NDArray) -> cupy.ndarray:
    count = signs.shape[1]
    out = empty_field((*eta.shape[:2], eta.shape[2] * count), eta.dtype)
    table: Any = to_device(signs.astype(np.int8))
    kinds = TYPES[eta.dtype.char], str(COLOURS)
    numbers = np.uintp(table.data.ptr), np.int32(count)
    fields = out, cupy.ascontiguousarray(eta)
    if not start("signed_columns", kinds, fields, *numbers, columns=out.shape[2]):
        return expressions.signed(eta, signs)
    return out


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
