"""Fields to 16 bits and back, and as kernels take them."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import dslash as shapes
from stages.lqcd.kernels.half_field import HalfField, check_field, empty
from stages.lqcd.kernels.operands import check_array

_NULL = np.uintp(0)


def halved(field: cupy.ndarray, components: int, out: HalfField | None = None) -> HalfField:
    """complex64 ``[site, components, N]``, 3 or 12 of them, in 16 bits; InputError for others."""
    check_array("field", field, (len(field), components, *field.shape[2:]), np.dtype(np.complex64))
    out = empty(cupy, len(field), field.shape[2], components) if out is None else out
    check_field("out", out, field.shape)
    kernel = shapes.half_conversion(*field.shape, to_half=True)
    run(kernel, field, _NULL, out.codes, out.scales, np.int32(len(field)))
    return out


def whole(field: HalfField, out: cupy.ndarray | None = None) -> cupy.ndarray:
    """The complex64 ``[site, components, N]`` that a HalfField holds."""
    check_field("field", field, field.shape)
    out = cupy.empty(field.shape, np.complex64) if out is None else out
    check_array("out", out, field.shape, np.dtype(np.complex64))
    kernel = shapes.half_conversion(*field.shape, to_half=False)
    run(kernel, field.codes, field.scales, out, _NULL, np.int32(len(out)))
    return out


def codes_and_scales(field: cupy.ndarray | HalfField) -> tuple[Any, Any]:
    """The two arguments that stand for a field, whole or in 16 bits."""
    return (field.codes, field.scales) if isinstance(field, HalfField) else (field, _NULL)
