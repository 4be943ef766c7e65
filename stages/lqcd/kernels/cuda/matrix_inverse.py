"""The batched ones of cuBLAS and cuSOLVER."""

from __future__ import annotations

from stages.lqcd.kernels.expressions import inverse as inverse
from stages.lqcd.kernels.expressions import is_finite as is_finite
