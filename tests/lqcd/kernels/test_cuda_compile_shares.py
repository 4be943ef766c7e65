"""Kernels that several devices share compile without a device, and a share costs no threads."""

from math import ceil

import numpy as np
import pytest

pytest.importorskip("cupy", reason="compiling the CUDA sources needs cupy and nvidia-cuda-nvrtc")

from cuda_launches import (
    DOUBLE,
    ODD,
    REGISTERS,
    ROWS,
    SINGLE,
    Kernels,
    of_gauge_links,
    of_grids_in_few,
    tuned,
    wilson,
)

from stages.lqcd.kernels.cuda import (
    cg_update,
    checksum,
    columns,
    heatbath,
    hisq_dslash,
    link_fields,
    random_numbers,
)
from stages.lqcd.kernels.cuda.compile import SHARED
from stages.lqcd.kernels.cuda.devices.partition import OwnWork
from stages.lqcd.kernels.cuda.launch import MULTIPROCESSOR_SHARED, Launch
from support.nvrtc_compiler import Usage, usages

pytestmark = pytest.mark.nvrtc


def shared(dtype: np.dtype) -> list[Launch]:
    """Of all that several devices share, what is used most."""
    kernels = (*tuned(dtype, (1, 16), (16,)), *wilson(dtype), *of_gauge_links(dtype))
    return [*(kernel for kernel in kernels if kernel.work is not None), *of_grids_in_few(dtype)]


def shared_sums(dtype: np.dtype) -> list[Launch]:
    """Those that compile in a moment: for the quick run."""
    rows = [columns.reduction("cg_residual", 16, dtype, ROWS), cg_update.cg_advance_launch(16, dtype, ROWS)]
    of_links = [link_fields.signs_launch("boundary_signs", ODD, dtype), heatbath.update_links_launch(ODD)]
    elements = [random_numbers.fill_random_launch(1000, dtype), checksum.sum_words_launch(1000)]
    sums = [*rows, hisq_dslash.sum_rows_launch(49152, 16)]
    return [*sums, *of_links, *elements] if dtype == SINGLE else []


ENOUGH = 768
"""Threads of a multiprocessor: a share may cost those beyond."""

SPILLS = 136
"""Bytes that a share may spill, of a few instances that have no register left."""

WITHOUT_REGISTERS = ("wilson_dslash.cu", "wilson_update.cu", "aggregation.cu", "wilson_galerkin.cu")
"""Their files."""

SPILLING_SHARES = {
    "hisq_dslash<double, Extents<32, 32, 32, 48>, Tile<4, 4, 2, 1>, Links9, Whole, Whole, 16, 1, 1, 32, "
    "16, 8, 8, false>": 8,
}
"""Instances of other files whose share spills, and bytes."""

FEWER = {
    "lane_gram<float, 1, 5, 128>": 512,
    "lane_gram<double, 1, 5, 128>": 512,
    "half_basis_dots<1, 6, 256>": 512,
}
"""Instances whose share costs threads, and how many of a multiprocessor are left."""


def resident_threads(kernel: Launch, used: Usage) -> int:
    """Threads of a multiprocessor that registers and shared memory leave room for."""
    block = ceil(used.registers / 8) * 8 * ceil(kernel.threads / 32) * 32
    shared = used.shared_bytes + kernel.shared_bytes + 1024
    return min(REGISTERS // block, MULTIPROCESSOR_SHARED // shared) * kernel.threads


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("kernels", [shared_sums, pytest.param(shared, marks=pytest.mark.slow)])
def test_a_share_costs_no_threads(kernels: Kernels, dtype: np.dtype) -> None:
    """As many are resident as without, or enough."""
    alone = dict(usages(kernels(dtype), "sm_90"))
    for kernel, used in usages(kernels(dtype), "sm_90", SHARED):
        assert used.told or isinstance(kernel.work, OwnWork), kernel.instance
        spills = SPILLS if kernel.file in WITHOUT_REGISTERS else SPILLING_SHARES.get(kernel.instance, 0)
        assert used.spilled_bytes <= alone[kernel].spilled_bytes + spills, (kernel.instance, used)
        wanted = FEWER.get(kernel.instance) or min(ENOUGH, resident_threads(kernel, alone[kernel]))
        assert resident_threads(kernel, used) >= wanted, (kernel.instance, used, alone[kernel])
