"""The batched ones of cuBLAS and cuSOLVER."""

from __future__ import annotations

import cupy

from stages.lqcd.kernels.cuda.devices.group import current_group, works_separately
from stages.lqcd.kernels.expressions import inverse as inverse


def is_finite(matrices: cupy.ndarray) -> bool | cupy.ndarray:
    """True if no element is infinite or NaN: on one device an array of it, of several their answers."""
    answer = cupy.isfinite(matrices).all()
    return answer if current_group() is None and not works_separately() else bool(answer)
