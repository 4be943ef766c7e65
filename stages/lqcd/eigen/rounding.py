"""What rounding leaves of the residuals of Lanczos."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from stages.lqcd.lattice.errors import InputError

ROUNDING = 50
"""Rounding units of the largest eigenvalue that residuals stay above."""


def check_reachable(tolerance: float, dtype: DTypeLike) -> None:
    """Raise InputError for a tolerance, in units of the largest eigenvalue, that vectors of this complex
    dtype cannot meet.
    """
    least = ROUNDING * float(np.finfo(dtype).eps)
    if tolerance < least:
        single = np.dtype(dtype) == np.complex64
        raise InputError(
            f"residuals in {'single' if single else 'double'} precision stay above about {least:.1g} of the "
            f"largest eigenvalue, got a tolerance of {tolerance:g}: take a larger one"
            + (", or double precision" if single else "")
        )
