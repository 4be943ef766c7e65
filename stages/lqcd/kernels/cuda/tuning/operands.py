"""The arrays that a kernel wrapper was given or gave back: kept, put back, compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda import hisq_packing, wilson_dslash
from stages.lqcd.kernels.cuda.clover import PackedClover

CONSTANT = (hisq_packing.PackedLinks, wilson_dslash.PackedLinks, PackedClover)
"""What no kernel writes to."""

SINGLE_TOLERANCE, DOUBLE_TOLERANCE = 1e-5, 1e-11
"""Largest difference of two results that is rounding, relative to the largest element."""


def arrays_in(value: Any) -> Iterator[cupy.ndarray]:
    """Device arrays among arguments or results, in sequences and dataclasses, but for packed matrices."""
    if isinstance(value, cupy.ndarray):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from arrays_in(item)
    elif is_dataclass(value) and not isinstance(value, (type, *CONSTANT)):
        for field in fields(value):
            yield from arrays_in(getattr(value, field.name))


def distinct(arrays: Iterator[cupy.ndarray]) -> list[cupy.ndarray]:
    """Each piece of memory once: an output may be an input."""
    return list({(array.data.ptr, array.nbytes): array for array in arrays}.values())


def restore(arrays: Sequence[cupy.ndarray], copies: Sequence[cupy.ndarray]) -> None:
    """Put copies back."""
    for array, copy in zip(arrays, copies, strict=True):
        array[...] = copy


def agree(results: Sequence[cupy.ndarray], expected: Sequence[cupy.ndarray], single: bool) -> bool:
    """True if results are the expected ones up to rounding; `single`: of single precision."""
    tolerance = SINGLE_TOLERANCE if single else DOUBLE_TOLERANCE
    return len(results) == len(expected) and all(
        _close(result, wanted, tolerance) for result, wanted in zip(results, expected, strict=True)
    )


def is_single(arrays: Sequence[cupy.ndarray]) -> bool:
    """True if anything is in single precision, by which all that follows is rounded."""
    return any(array.dtype in (np.float32, np.complex64) for array in arrays)


def _close(result: cupy.ndarray, expected: cupy.ndarray, tolerance: float) -> bool:
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return False
    if result.dtype.kind not in "fc":
        return bool((result == expected).all())
    if result.size == 0:
        return True
    finite = cupy.isfinite(expected)
    size, difference = (abs(cupy.where(finite, values, 0)).max() for values in (expected, result - expected))
    return bool((cupy.isfinite(result) == finite).all() and difference <= tolerance * size)
