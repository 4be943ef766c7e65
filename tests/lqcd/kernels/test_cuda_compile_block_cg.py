"""The kernels of block CGrQ compile without a device, in every shape that may be chosen, and fit an A100."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

pytest.importorskip("cupy", reason="compiling the CUDA sources needs cupy and nvidia-cuda-nvrtc")

from nvrtc_compiler import usages

from stages.lqcd.kernels.cuda import block_cg, tensor_block_cg
from stages.lqcd.kernels.cuda.launch import MAX_RHS, REGISTERS, Launch

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)
SHARED_BYTES = 163 * 1024
ROWS = 3 * 32**3 * 24
MULTIPLES = range(16, MAX_RHS + 1, 8)


def test_block_iteration_fits_an_a100_in_every_candidate() -> None:
    for dtype in (SINGLE, DOUBLE):
        for n in range(1, MAX_RHS + 1):
            steps = [
                block_cg.block_step_in_shape(n, dtype, 9999, True, shape)
                for shape in block_cg.step_candidates(n, dtype)
            ]
            grams = [
                block_cg.iteration_grams_in_shape(n, dtype, 9999, shape)
                for shape in block_cg.grams_candidates(n, dtype)
            ]
            assert len(steps) <= 12 and len(grams) <= 12
            assert (bool(steps), bool(grams)) == (True, True) or n % 8 or n > 32
            for kernel in (*steps, *grams, block_cg.step_coefficients_launch(n, n)):
                assert kernel.threads <= 1024 and kernel.shared_bytes <= SHARED_BYTES, kernel


def on_tensor_cores(n: int, dtype: np.dtype) -> list[Launch]:
    """Every launch for this width."""
    steps = tensor_block_cg.tensor_step_candidates(n, dtype)
    sums = tensor_block_cg.tensor_grams_candidates(n, dtype)
    solutions = tensor_block_cg.tensor_solution_candidates(n) if dtype == SINGLE else []
    return [
        tensor_block_cg.coefficient_tiles_launch(n, dtype, 4),
        *(tensor_block_cg.tensor_step_in_shape(n, dtype, ROWS, shape) for shape in steps),
        *(tensor_block_cg.tensor_grams_in_shape(n, dtype, ROWS, shape) for shape in sums),
        *(tensor_block_cg.tensor_solution_in_shape(n, ROWS, shape) for shape in solutions),
    ]


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_tensor_cores_take_all_multiples_of_8_from_16_on(dtype: np.dtype) -> None:
    for n in range(1, MAX_RHS + 1):
        steps = tensor_block_cg.tensor_step_candidates(n, dtype)
        assert bool(steps) == bool(tensor_block_cg.tensor_solution_candidates(n)) == (n in MULTIPLES)
        summed = n in MULTIPLES and (n == 64 or (dtype == DOUBLE and n != 24))
        assert bool(tensor_block_cg.tensor_grams_candidates(n, dtype)) == summed
        assert block_cg.repeatable(n, dtype) or n not in MULTIPLES


@pytest.mark.parametrize(
    ("n", "arch"),
    [
        (16, "sm_90"),
        *(pytest.param(n, "sm_90", marks=pytest.mark.slow) for n in MULTIPLES[1:]),
        *(
            pytest.param(n, arch, marks=pytest.mark.slow)
            for n in (16, 24, 64)
            for arch in ("sm_80", "sm_100")
        ),
    ],
)
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_launches_on_tensor_cores_compile_and_fit(n: int, arch: str, dtype: np.dtype) -> None:
    for kernel, used in usages(on_tensor_cores(n, dtype), arch):
        assert used.registers * ceil(kernel.threads / 32) * 32 <= REGISTERS, (kernel.instance, used)
        assert used.shared_bytes + kernel.shared_bytes <= SHARED_BYTES, (kernel.instance, used)
        assert used.spilled_bytes <= 640, (kernel.instance, used)
