"""Every shape in which a kernel may be launched compiles without a device, and fits an A100."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from math import ceil

import pytest

pytest.importorskip("cupy", reason="compiling the CUDA sources needs cupy and nvidia-cuda-nvrtc")

from cuda_launches import BIG, DOUBLE, ODD, REGISTERS, ROWS, SHARED_BYTES, SINGLE
from nvrtc_compiler import usages

from stages.lqcd.kernels.cuda import (
    block_blas,
    block_cg,
    cg_update,
    columns,
    hisq_dslash,
    lane_blas,
    slice_products,
    wilson_dslash,
)

CHOICES = [
    pytest.param(hisq_dslash.dslash_launch, (BIG, 16, SINGLE, 16), marks=pytest.mark.slow),
    pytest.param(hisq_dslash.dslash_launch, (BIG, 16, DOUBLE, 8), marks=pytest.mark.slow),
    pytest.param(
        wilson_dslash.wilson_dslash_launch,
        (BIG, SINGLE, 16, 1, wilson_dslash.HOP_CLOVER),
        marks=pytest.mark.slow,
    ),
    pytest.param(block_blas.gram_launch, (16, 16, SINGLE, ROWS), marks=pytest.mark.slow),
    pytest.param(block_blas.gram_launch, (12, 12, DOUBLE, ROWS), marks=pytest.mark.slow),
    (block_blas.multiply_add_launch, (16, 16, SINGLE, ROWS)),
    pytest.param(block_blas.multiply_add_launch, (32, 32, DOUBLE, ROWS), marks=pytest.mark.slow),
    (block_cg.block_step_launch, (16, DOUBLE, ROWS, True)),
    pytest.param(block_cg.block_step_launch, (16, SINGLE, ROWS, False), marks=pytest.mark.slow),
    (block_blas.multiply_add_launch, (16, 16, SINGLE, ROWS, DOUBLE)),
    pytest.param(block_cg.iteration_grams_launch, (16, SINGLE, ROWS), marks=pytest.mark.slow),
    (columns.reduction, ("dots", 16, SINGLE, ROWS)),
    (columns.reduction, ("norms2", 1, DOUBLE, ROWS)),
    (cg_update.cg_advance_launch, (16, SINGLE, ROWS)),
    (lane_blas.lane_dots_launch, (16, SINGLE, ROWS, 3)),
    (lane_blas.lane_update_launch, (16, DOUBLE, ROWS, 2)),
    (lane_blas.lane_polynomial_launch, (16, SINGLE, ROWS, 3)),
    (slice_products.one_link_current_launch, (ODD, 16, DOUBLE)),
]


@pytest.mark.parametrize(("kernel", "arguments"), CHOICES)
def test_every_shape_that_may_be_chosen_compiles(kernel: Callable, arguments: tuple) -> None:
    options = unwrap(kernel)(*arguments)
    assert len(options.shapes) > 1
    for launch, used in usages([options.launch(shape) for shape in options.shapes], "sm_90"):
        assert used.registers * ceil(launch.threads / 32) * 32 <= REGISTERS, (launch.instance, used)
        assert used.shared_bytes + launch.shared_bytes <= SHARED_BYTES, (launch.instance, used)
