"""Every CUDA kernel compiles for three generations of GPUs without a device; tuned ones hardly spill."""

import re
from importlib.resources import files
from math import ceil

import numpy as np
import pytest

pytest.importorskip("cupy", reason="compiling the CUDA sources needs cupy and nvidia-cuda-nvrtc")

from cuda_launches import (
    BIG,
    DOUBLE,
    HUGE,
    REGISTERS,
    SHARED_BYTES,
    SINGLE,
    Kernels,
    in_single,
    of_gauge_links,
    of_grids,
    of_grids_in_few,
    tuned,
    unusual,
    unusual_wilson,
    wilson,
)

from stages.lqcd.kernels.cuda import heatbath, hisq_dslash, link_fields, slice_products, smearing
from stages.lqcd.kernels.cuda.compile import source
from support.nvrtc_compiler import compile_only, usages

pytestmark = pytest.mark.nvrtc

ARCHITECTURES = (
    pytest.param("sm_80", marks=pytest.mark.slow),
    "sm_90",
    pytest.param("sm_100", marks=pytest.mark.slow),
)

SPILLING = {
    "norms2<float, 3, 64>": 8,
    "norms2<double, 3, 64>": 8,
    "bicgstab_omega<float, 3, 64>": 32,
    "bicgstab_omega<double, 3, 64>": 32,
    "short_nine_links<32>": 16,
    **{f"wilson_galerkin<24, {direction}>": 56 for direction in (0, 1, 3)},
    **{f"add_prolonged<{components}, 64, 16, 16, 4>": 80 for components in (6, 64)},
}
"""Tuned instances that spill on one generation or another, and bytes."""


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("kernels", "spills"),
    [
        (in_single, 0),
        pytest.param(tuned, 0, marks=pytest.mark.slow),
        pytest.param(wilson, 192, marks=pytest.mark.slow),
        pytest.param(unusual_wilson, 320, marks=pytest.mark.slow),
        pytest.param(unusual, 64, marks=pytest.mark.slow),
        (of_gauge_links, 0),
        pytest.param(of_grids_in_few, 48, marks=pytest.mark.slow),
        pytest.param(of_grids, 48, marks=pytest.mark.slow),
    ],
)
def test_kernels_compile(kernels: Kernels, spills: int, arch: str, dtype: np.dtype) -> None:
    for kernel, used in usages(kernels(dtype), arch):
        assert used.spilled_bytes <= SPILLING.get(kernel.instance, spills), (kernel.instance, used)
        assert used.registers * ceil(kernel.threads / 32) * 32 <= REGISTERS, (kernel.instance, used)
        assert used.shared_bytes + kernel.shared_bytes <= SHARED_BYTES, (kernel.instance, used)


@pytest.mark.parametrize(("dtype", "n", "limit"), [(SINGLE, 16, 128), (SINGLE, 32, 128), (DOUBLE, 16, 128)])
def test_tuned_dslash_keeps_enough_threads_resident(dtype: np.dtype, n: int, limit: int) -> None:
    kernel = hisq_dslash.dslash_launch(BIG, 16, dtype, n)
    used = compile_only(kernel.file, [kernel.instance], "sm_90")[kernel.instance]
    assert 64 < used.registers <= limit and used.spilled_bytes == 0


@pytest.mark.parametrize(("dtype", "most"), [(SINGLE, 10), pytest.param(DOUBLE, 5, marks=pytest.mark.slow)])
def test_kernels_compile_for_a_huge_lattice(dtype: np.dtype, most: int) -> None:
    for kernel in (
        hisq_dslash.dslash_launch(HUGE, 16, dtype, most),
        slice_products.one_link_current_launch(HUGE, most, dtype),
        smearing.add_staple_launch(HUGE, dtype),
        heatbath.update_links_launch(HUGE),
        link_fields.long_links_launch(HUGE, dtype),
        link_fields.signs_launch("staggered_phases", HUGE, dtype),
    ):
        compile_only(kernel.file, [kernel.instance], "sm_90")


def test_compiler_errors_name_file_and_line_of_the_source() -> None:
    """R = 2 does not divide N = 5: the assertion's line is that of the header."""
    text = (files("stages.lqcd.kernels.cuda") / "color_vectors.cuh").read_text().splitlines()
    line = next(i for i, code in enumerate(text, start=1) if "static_assert(N_ % R_ == 0" in code)
    kinds = "float, Extents<8, 8, 8, 8>, Tile<4, 4, 2, 1>, Links18, Whole, Whole"
    instance = f"hisq_dslash<{kinds}, 16, 5, 2, 32, 1, 2, 4, false>"
    with pytest.raises(Exception) as error:
        compile_only("hisq_dslash.cu", [instance], "sm_90")
    assert f"color_vectors.cuh({line}): error" in "\n".join(error.value.__notes__)


def test_branches_that_are_loops_have_braces() -> None:
    """NVRTC 13 leaves out the `else` of an `if constexpr` whose branch is a loop without braces."""
    folder = files("stages.lqcd.kernels.cuda")
    sources = [each for each in folder.iterdir() if each.name.endswith((".cu", ".cuh"))]
    found = [each.name for each in sources if re.search(r"if constexpr [^\n]*\)\s*for\b", each.read_text())]
    assert len(sources) > 50 and not found


def test_headers_are_expanded_once_and_no_complex_class_is_used() -> None:
    for file in ("hisq_dslash.cu", "gram.cu", "one_link_current.cu"):
        text = source(file)
        assert "#include" not in text and text.count("struct ComplexOf;") == 1
