"""The kernels of block CGrQ compile without a device in the shape of every width, and fit an A100."""

from math import ceil

import numpy as np
import pytest

pytest.importorskip("cupy", reason="compiling the CUDA sources needs cupy and nvidia-cuda-nvrtc")

from stages.lqcd.kernels.cuda import block_cg
from stages.lqcd.kernels.cuda.launch import MAX_RHS, REGISTERS, Launch
from support.nvrtc_compiler import usages

pytestmark = pytest.mark.nvrtc

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)
SHARED_BYTES = 163 * 1024
ROWS = 3 * 32**3 * 24
MULTIPLES = range(16, MAX_RHS + 1, 8)


def test_block_iteration_fits_an_a100_at_every_width() -> None:
    for dtype in (SINGLE, DOUBLE):
        for n in range(1, MAX_RHS + 1):
            step = block_cg.block_step_launch(n, dtype, 9999, True)
            grams = block_cg.iteration_grams_launch(n, dtype, 9999)
            assert (step and grams) or n % 8 or n > 32
            for kernel in filter(None, (block_cg.step_coefficients_launch(n, n), step, grams)):
                assert kernel.threads <= 1024 and kernel.shared_bytes <= SHARED_BYTES, kernel


def on_tensor_cores(n: int, dtype: np.dtype) -> list[Launch]:
    """Every launch for this width."""
    launches = [
        block_cg.coefficient_tiles_launch(n, dtype, 4),
        block_cg.tensor_step_launch(n, dtype, ROWS),
    ]
    if block_cg.takes_grams(n, dtype):
        launches.append(block_cg.tensor_grams_launch(n, dtype, ROWS))
    if dtype == SINGLE:
        launches.append(block_cg.tensor_solution_launch(n, ROWS))
    return launches


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_tensor_cores_take_all_multiples_of_8_from_16_on(dtype: np.dtype) -> None:
    for n in range(1, MAX_RHS + 1):
        assert block_cg.fills_tiles(n) == (n in MULTIPLES)
        summed = n in MULTIPLES and (n == 64 or (dtype == DOUBLE and n != 24))
        assert block_cg.takes_grams(n, dtype) == summed
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
