"""Memory of fields on one GPU, or on those that share the lattice."""

from __future__ import annotations

from contextlib import AbstractContextManager

import cupy
import numpy as np
from numpy.typing import DTypeLike

from stages.lqcd.kernels.cuda.devices.group import current_group, on_one_device
from stages.lqcd.kernels.cuda.devices.own_rows import elementwise, on_own_rows, runs_like
from stages.lqcd.kernels.cuda.devices.own_rows import empty_rows as empty_rows
from stages.lqcd.kernels.cuda.devices.own_rows import of_rows as of_rows
from stages.lqcd.kernels.cuda.devices.own_rows import on_rows as on_rows
from stages.lqcd.kernels.cuda.devices.own_rows import zero_rows as zero_rows
from stages.lqcd.kernels.cuda.devices.spans import span_of

COPY = cupy.ElementwiseKernel("X x", "Y y", "y = Y(x)", "copy")


def empty_field(shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
    group = current_group()
    return cupy.empty(shape, dtype) if group is None else group.empty(shape, dtype)


def on_one_gpu() -> AbstractContextManager[None]:
    return on_one_device()


def zero_field(shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
    group = current_group()
    return cupy.zeros(shape, dtype) if group is None else group.zeros(shape, dtype)


def available_bytes() -> int:
    group = current_group()
    if group is None:
        return _free_bytes()
    mapped, parts = group.pool.free_bytes_of_parts, len(group.ids)
    free = []
    for part, device in enumerate(group.ids):
        with cupy.cuda.Device(device):
            free.append(_free_bytes() // group.ids.count(device) + mapped[part])
    return parts * min(free)


def _free_bytes() -> int:
    """Free memory of the current device and of CuPy's pool there, up to the pool's limit."""
    pool = cupy.get_default_memory_pool()
    free = int(cupy.cuda.Device().mem_info[0]) + int(pool.free_bytes())
    return min(free, limit - int(pool.used_bytes())) if (limit := int(pool.get_limit())) else free


def assign(out: cupy.ndarray, source: cupy.ndarray | complex) -> None:
    if isinstance(source, cupy.ndarray):
        elementwise(_copy, source, out)
    elif current_group() is None:
        out.fill(source)
    else:
        elementwise(COPY, out, small=(cupy.full((), source, out.dtype),))


def _copy(source: cupy.ndarray, out: cupy.ndarray) -> None:
    """``out = source``, by numbers of 16 bytes where both are so many side by side: a thread moves one."""
    alike = source.dtype == out.dtype and source.shape == out.shape
    side_by_side = source.flags.c_contiguous and out.flags.c_contiguous
    if alike and side_by_side and not (source.data.ptr | out.data.ptr | out.nbytes) % 16:
        source, out = (each.reshape(-1).view(np.complex128) for each in (source, out))
    COPY(source, out)


def repeat(out: cupy.ndarray, source: cupy.ndarray) -> None:
    on_own_rows(COPY, out, small=(source,))


def runs_of_bytes(array: cupy.ndarray) -> list[tuple[int, range]]:
    """Devices and the bytes of a C-contiguous array that lie there, in their order."""
    group, span = current_group(), span_of(array)
    if group is None or span is None:
        return [(cupy.cuda.get_device_id(), range(array.nbytes))]
    runs = []
    for part, address, length in span.segments():
        first = max(0, address - array.data.ptr)
        end = min(array.nbytes, address + length - array.data.ptr)
        if first < end:
            runs.append((group.ids[part], range(first, end)))
    return runs


def field_like(field: cupy.ndarray, shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
    """A field that lies as another does if it has its rows, perhaps several times."""
    runs = runs_like(field, shape)
    return empty_field(shape, dtype) if runs is None else empty_rows(shape, dtype, runs)


def zeros_like(field: cupy.ndarray, shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
    """A field of zeros that lies as another does if it has its rows."""
    runs = runs_like(field, shape)
    return zero_field(shape, dtype) if runs is None else zero_rows(shape, dtype, runs)
