"""Kernels of block CGrQ in the shape of every width, and of s-step methods, compile and fit an A100."""

from math import ceil

import numpy as np
import pytest

pytest.importorskip("cupy", reason="compiling the CUDA sources needs cupy and nvidia-cuda-nvrtc")

from stages.lqcd.kernels.cuda import block_cg, powers
from stages.lqcd.kernels.cuda.compile import SHARED
from stages.lqcd.kernels.cuda.devices.partition import OwnWork
from stages.lqcd.kernels.cuda.launch import MAX_RHS, REGISTERS, Launch
from stages.lqcd.kernels.powers import MOST_STEPS
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


ROWS_OF_POWERS = 3 * 16**3 * 24


def of_steps(steps: int, n: int, dtype: np.dtype) -> list[Launch]:
    """Every kernel of vectors of this type."""
    doubled = dtype == DOUBLE
    return [
        powers.exact_gram_launch(steps, n, ROWS_OF_POWERS)
        if doubled
        else powers.gram_launch(steps, n, dtype, ROWS_OF_POWERS),
        powers.gram_launch(steps, n, dtype, ROWS_OF_POWERS, magnitudes=True),
        powers.update_launch(steps, n, dtype, ROWS_OF_POWERS),
        *(powers.gram_sum_launch(steps, n, kind) for kind in {doubled, False}),
        powers.coordinates_launch(steps, n, doubled),
    ]


def test_every_launch_of_powers_fits() -> None:
    for dtype in (SINGLE, DOUBLE):
        for n in (1, 2, 3, 4, 8, 12, 33, MAX_RHS):
            for steps in (1, 2, 7, MOST_STEPS):
                for kernel in of_steps(steps, n, dtype):
                    assert kernel.threads <= 1024 and kernel.shared_bytes <= SHARED_BYTES, kernel
                    assert all(0 < extent < 2**16 for extent in kernel.grid[1:]) and kernel.grid[0] > 0, (
                        kernel
                    )


@pytest.mark.parametrize(
    ("steps", "n", "dtype", "arch"),
    [
        (4, 1, DOUBLE, "sm_90"),
        *(
            pytest.param(steps, n, dtype, arch, marks=pytest.mark.slow)
            for steps, n in ((1, 1), (4, 3), (8, 1), (16, 1), (16, 64))
            for dtype in (SINGLE, DOUBLE)
            for arch in ("sm_80", "sm_90", "sm_100")
        ),
    ],
)
def test_powers_compile_without_spills(steps: int, n: int, dtype: np.dtype, arch: str) -> None:
    kernels = list({kernel.instance: kernel for kernel in of_steps(steps, n, dtype)}.values())
    for kernel, used in usages(kernels, arch):
        assert used.spilled_bytes == 0, (kernel.instance, used)
        assert used.registers * ceil(kernel.threads / 32) * 32 <= REGISTERS, (kernel.instance, used)
        assert used.shared_bytes + kernel.shared_bytes <= SHARED_BYTES, (kernel.instance, used)


def test_devices_are_told_their_share_which_costs_few_registers() -> None:
    kernels = [kernel for kernel in of_steps(4, 1, DOUBLE) if kernel.work is not None]
    alone = dict(usages(kernels, "sm_90"))
    for kernel, used in usages(kernels, "sm_90", SHARED):
        assert used.told != isinstance(kernel.work, OwnWork), kernel.instance
        assert used.spilled_bytes == 0, (kernel.instance, used)
        assert used.registers <= alone[kernel].registers + 4, (kernel.instance, used, alone[kernel])
