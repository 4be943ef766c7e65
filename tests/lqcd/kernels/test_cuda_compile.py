"""Every CUDA kernel compiles for three generations of GPUs without a device; tuned ones hardly spill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from inspect import unwrap
from math import ceil, prod

import numpy as np
import pytest

pytest.importorskip("cupy", reason="compiling the CUDA sources needs cupy and nvidia-cuda-nvrtc")

from nvrtc_compiler import Usage, compile_only, usages

from stages.errors import InputError
from stages.lqcd.kernels.aggregation import MOST_ON_GPU
from stages.lqcd.kernels.cuda import (
    aggregation,
    backward_links,
    bicgstab_update,
    block_blas,
    block_cg,
    cg_update,
    checksum,
    clover,
    coarse_dslash,
    columns,
    doubled_links,
    field_strength,
    half_coarse_dslash,
    half_field,
    half_update,
    heatbath,
    hisq_dslash,
    hisq_packing,
    lane_blas,
    lane_gram,
    long_links,
    noise,
    one_link_current,
    random_block,
    short_field,
    signs,
    slice_products,
    slice_shift,
    staple,
    stream,
    wilson_dslash,
    wilson_galerkin,
    wilson_update,
)
from stages.lqcd.kernels.cuda.compile import SHARED, source
from stages.lqcd.kernels.cuda.devices.partition import OwnWork
from stages.lqcd.kernels.cuda.launch import MAX_RHS, MULTIPROCESSOR_SHARED, Launch, matrix_launch
from stages.lqcd.kernels.cuda.tuning.timing import DELAY
from stages.lqcd.lattice.geometry import Lattice

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)
ARCHITECTURES = (
    pytest.param("sm_80", marks=pytest.mark.slow),
    "sm_90",
    pytest.param("sm_100", marks=pytest.mark.slow),
)
REGISTERS = 65536
SHARED_BYTES = 163 * 1024
BIG = Lattice((32, 32, 32, 48))
ODD = Lattice((14, 6, 10, 4))
WIDTHS = (1, 3, 8, 16, 33, 64)
UNUSUAL = [(1, 1), (3, 3), (7, 33), (64, 1), (1, 64)]
NINE_SHORT = replace(hisq_packing.SHORT, links=hisq_packing.SHORT_NINE.links)
NINE_SHORT20 = replace(hisq_packing.TO_SHORT20, links=hisq_packing.SHORT_NINE.links)
FORMS = [
    hisq_packing.FULL,
    hisq_packing.THIRTEEN,
    hisq_packing.IN_FIELDS,
    hisq_packing.FOURTEEN,
    hisq_packing.SHORT,
    hisq_packing.TO_SHORT20,
    hisq_packing.NINE,
    NINE_SHORT,
]
WILSON_FORMS = [wilson_dslash.FULL, wilson_dslash.TWELVE, wilson_dslash.IN_FIELDS]
ROWS = 3 * BIG.half_volume
Kernels = Callable[[np.dtype], list[Launch]]


def dslashes(dtype: np.dtype, widths: Sequence[int] = WIDTHS) -> list[Launch]:
    """The dslash in the forms that are used."""
    full = [hisq_dslash.dslash_launch(BIG, 16, dtype, n, dots) for n in widths for dots in (False, True)]
    if dtype == DOUBLE:
        in_fields = hisq_packing.IN_FIELDS
        nine = ((n, hisq_packing.NINE) for n in (1, 4))
        forms = (*nine, (1, hisq_packing.FOURTEEN), (1, in_fields), (16, in_fields))
        return [*full, *(hisq_dslash.dslash_launch(BIG, 16, dtype, n, form=form) for n, form in forms)]
    forms = (
        *((n, hisq_packing.THIRTEEN) for n in (1, 8)),
        *((16, form) for form in (hisq_packing.SHORT, hisq_packing.TO_SHORT20)),
        *((n, form) for n in (1, 2, 4) for form in (hisq_packing.NINE, NINE_SHORT, NINE_SHORT20)),
    )
    return [*full, *(hisq_dslash.dslash_launch(BIG, 16, dtype, n, form=form) for n, form in forms)]


def wilson(dtype: np.dtype) -> list[Launch]:
    """The Wilson dslash and its relatives in what is used most."""
    return [
        wilson_dslash.wilson_dslash_launch(BIG, dtype, 16, 1, wilson_dslash.HOP_CLOVER),
        wilson_dslash.wilson_dslash_launch(
            BIG, dtype, 8, -1, wilson_dslash.DIAGONAL_CLOVER, wilson_dslash.TWELVE
        ),
        *([*half_spinors(16), *updates(16)] if dtype == SINGLE else []),
        *(
            wilson_dslash.wilson_dslash_launch(BIG, DOUBLE, n, 1, place, wilson_dslash.IN_FIELDS)
            for n, place in ((1, wilson_dslash.NO_CLOVER), (12, wilson_dslash.DIAGONAL_CLOVER))
            if dtype == DOUBLE
        ),
        wilson_dslash.wilson_hop_launch(ODD, dtype, 24, 7, -1, wilson_dslash.TWELVE),
        *(
            doubled_links.weighted_links_launch(ODD, dtype, wilson_dslash.wilson_tile(ODD), rows)
            for rows in (2, 3)
        ),
        clover.clover_multiply_launch(1000, dtype, 16),
    ]


def half_spinors(n: int) -> list[Launch]:
    """What BiCGstab in half precision takes."""
    sites, place = BIG.half_volume, wilson_dslash.HOP_CLOVER
    return [
        *(
            wilson_dslash.wilson_dslash_launch(BIG, SINGLE, n, 1, place, form, wilson_dslash.HALF)
            for form in (wilson_dslash.FULL, wilson_dslash.TWELVE)
        ),
        *(half_update.half_reduction_launch(name, n, sites) for name in half_update.SUMS),
        *(half_update.half_update_launch(n, sites, fields) for fields in (1, 2)),
    ]


def updates(n: int) -> list[Launch]:
    """What a smoother of multigrid takes."""
    place, kinds = wilson_dslash.HOP_CLOVER, ("Half", "Whole")
    forms = (wilson_dslash.FULL, wilson_dslash.TWELVE)
    update = wilson_update.wilson_update_launch
    return [update(BIG, SINGLE, n, place, form, "Half", "Half", out) for form in forms for out in kinds]


def unusual_wilson(dtype: np.dtype) -> list[Launch]:
    """Every width, form and place of clover matrices."""
    return [
        *(wilson_dslash.wilson_dslash_launch(BIG, dtype, n, 1, wilson_dslash.HOP_CLOVER) for n in WIDTHS),
        *(wilson_dslash.wilson_dslash_launch(BIG, dtype, 16, -1, clover) for clover in (0, 1, 2)),
        *(
            wilson_dslash.wilson_dslash_launch(ODD, dtype, n, form=form)
            for n in (1, 3, 8)
            for form in WILSON_FORMS
            if form != wilson_dslash.IN_FIELDS or dtype == DOUBLE
        ),
        *(wilson_dslash.wilson_hop_launch(ODD, dtype, 3, direction, 1) for direction in range(8)),
        *(clover.clover_multiply_launch(1000, dtype, n) for n in (1, 3, 8)),
        *(
            wilson_dslash.wilson_dslash_launch(ODD, SINGLE, n, -1, 1, fields=wilson_dslash.HALF_TO_SINGLE)
            for n in (1, 8, 33)
        ),
        *(half_field.half_conversion_launch(1000, n, to_half) for n in (1, 6) for to_half in (True, False)),
        *(kernel for n in (1, 3, 12, 33, 64) for kernel in half_spinors(n)),
    ]


def tuned(
    dtype: np.dtype, widths: Sequence[int] = WIDTHS, blocks: Sequence[int] = (8, 16, 24, 32, 64)
) -> list[Launch]:
    """The instances whose speed matters: block widths that are multiples of 8, and everything per column."""
    return [
        *dslashes(dtype, widths),
        *(block_blas.gram_launch(n, n, dtype, ROWS) for n in blocks if n != 24),
        *(block_blas.multiply_add_launch(n, n, dtype, ROWS) for n in blocks if n != 24),
        *(block_cg.block_step_launch(n, dtype, ROWS, True) for n in blocks if n <= 32),
        *(block_cg.iteration_grams_launch(n, dtype, ROWS) for n in blocks if n <= 32),
        *(columns.reduction(kernel, n, dtype, ROWS) for kernel in columns.REDUCTIONS for n in widths),
        *(cg_update.cg_advance_launch(n, dtype, ROWS) for n in widths),
        *(lane_gram.lane_gram_launch(n, dtype, ROWS, 5) for n in (1, 8, 24, 33)),
        lane_gram.lane_least_squares_launch(16, 5),
        *(lane_blas.lane_dots_launch(n, dtype, ROWS, 10) for n in widths),
        *(lane_blas.lane_update_launch(n, dtype, ROWS, 10) for n in widths),
        *(
            bicgstab_update.bicgstab_launch(sums, n, dtype, ROWS)
            for sums in bicgstab_update.SUMS
            for n in widths
        ),
        *(lane_blas.lane_polynomial_launch(n, dtype, ROWS, 3) for n in widths),
        *(one_link_current.one_link_current_launch(ODD, n, dtype) for n in widths),
        staple.add_staple_launch(ODD, dtype),
        long_links.long_links_launch(ODD, dtype),
        signs.signs_launch("staggered_phases", ODD, dtype),
        signs.signs_launch("boundary_signs", ODD, dtype),
        doubled_links.doubled_links_launch(ODD, 16, dtype, (1, 1, 1, 1)),
        doubled_links.doubled_links_launch(ODD, 16, dtype, hisq_packing.dslash_tile(ODD)),
        *(hisq_packing.shorter_links_launch(9, sites, dtype) for sites in (2, 32)),
        *(short_vectors() if dtype == SINGLE else []),
        field_strength.field_strength_launch(ODD, dtype),
        field_strength.add_clover_launch(1000, dtype),
        noise.noise_launch("noise_roots", ODD, 5, dtype),
        noise.noise_launch("noise_gaussian", ODD, 5, dtype),
        random_block.fill_random_launch(1000, dtype),
        checksum.sum_words_launch(1000),
        block_blas.sum_partials_launch(128),
        slice_products.add_runs_launch(8192, 48, dtype),
        slice_shift.slice_shift_launch(ODD, dtype, 0, 1, 1680, 64),
        slice_shift.slice_shift_launch(ODD, dtype, 2, -1, 1680, 3),
        DELAY,
        stream.REPORT,
        *(hisq_dslash.sum_rows_launch(49152, n) for n in widths),
    ]


def short_vectors(widths: Sequence[int] = WIDTHS) -> list[Launch]:
    """Kernels on short fields beside the dslash."""
    return [
        hisq_packing.nine_links_launch(9, 32, SINGLE, short=True),
        *(cg_update.short_advance_launch(n, ROWS // 3) for n in widths),
        *(cg_update.short_residual_launch(n, ROWS // 3) for n in widths),
        *(
            short_field.short_conversion_launch(kernel, 1000, n, bits)
            for kernel in ("to_short", "from_short")
            for n in (1, 33)
            for bits in (16, 20)
        ),
    ]


def in_single(dtype: np.dtype) -> list[Launch]:
    """One instance of each kernel of `tuned`, in the precision that most time goes to: for the quick run."""
    if dtype != SINGLE:
        return []
    return list({launch.instance.partition("<")[0]: launch for launch in tuned(dtype, (33,), (16,))}.values())


def unusual(dtype: np.dtype) -> list[Launch]:
    """Instances that must be right rather than fast."""
    two_rows = hisq_packing.THIRTEEN if dtype == SINGLE else hisq_packing.FOURTEEN
    return [
        *(hisq_dslash.dslash_launch(ODD, directions, dtype, n) for directions in (16, 8, 6) for n in (8, 33)),
        *(
            hisq_dslash.dslash_launch(ODD, directions, dtype, n, True)
            for directions in (16, 8)
            for n in (56, 33)
        ),
        *(hisq_dslash.dslash_launch(ODD, 16, dtype, n, form=two_rows) for n in (1, 8, 33)),
        *(
            hisq_dslash.dslash_launch(ODD, 16, dtype, n, dots, hisq_packing.NINE)
            for n in (1, 8, 33)
            for dots in (False, True)
        ),
        *(hisq_packing.nine_links_launch(9, sites, dtype, short=False) for sites in (2, 30)),
        *(hisq_dslash.dslash_launch(ODD, 16, SINGLE, n, True, NINE_SHORT20) for n in (1, 33)),
        *(hisq_dslash.dslash_launch(ODD, 8, SINGLE, n, form=hisq_packing.SHORT) for n in (1, 12, 33)),
        *(hisq_dslash.dslash_launch(ODD, 16, SINGLE, n, True, hisq_packing.TO_SHORT20) for n in (8, 33)),
        *(block_blas.gram_launch(nx, ny, dtype, ROWS) for nx, ny in UNUSUAL),
        *(block_blas.multiply_add_launch(nx, ny, dtype, ROWS) for nx, ny in UNUSUAL),
        *(block_cg.step_coefficients_launch(n, n) for n in (1, 16, 64)),
    ]


def of_grids(dtype: np.dtype, widths: Sequence[int] = (1, 5, 16, 64)) -> list[Launch]:
    """Kernels of multigrid, which exist in single precision alone."""
    if dtype == DOUBLE:
        return []
    return [
        *(
            coarse_dslash.coarse_dslash_launch(c, n, 9, v)
            for c, v in ((20, 4096), (48, 4096), (64, 16))
            for n in widths
        ),
        *(coarse_dslash.coarse_dslash_launch(128, n, 9, v) for v in (4096, 16) for n in widths),
        *(
            half_coarse_dslash.half_coarse_dslash_launch(c, n, 8, v)
            for c, v in ((20, 4096), (48, 4096), (64, 256), (128, 16))
            for n in widths
        ),
        *(half_coarse_dslash.half_tiles_launch(c, d, 16) for c, d in ((20, 8), (48, 8), (64, 16), (128, 1))),
        *(
            wilson_galerkin.wilson_galerkin_launch(k, mu, 256, 256)
            for k in (8, 16, 24, 32)
            for mu in range(5)
        ),
        wilson_galerkin.places_launch(4096),
        *(backward_links.backward_links_launch(n, dtype, 4096) for n in (16, 48, 64, 82)),
        *(aggregation.gram_launch(n, 256) for n in (1, 5, 24, 32)),
        *(aggregation.tiles_launch(order, n, 256) for order in ("row_tiles", "term_tiles") for n in (5, 24)),
        *(aggregation.restrict_launch(c, MOST_ON_GPU, n, 256) for c in (6, 64) for n in widths),
        *(aggregation.add_prolonged_launch(c, MOST_ON_GPU, n, 256, 256) for c in (6, 64) for n in widths),
        *(aggregation.restrict_launch(c, 24, n, a) for c in (6, 24) for n in widths for a in (256, 4096)),
        *(aggregation.add_prolonged_launch(c, 24, n, 256, 256) for c in (6, 24) for n in widths),
    ]


def of_grids_in_few(dtype: np.dtype) -> list[Launch]:
    """Those of `of_grids` in one width: for the quick run."""
    return of_grids(dtype, (16,))


def of_gauge_links(dtype: np.dtype) -> list[Launch]:
    """Kernels on links that exist in double precision alone."""
    return (
        []
        if dtype == SINGLE
        else [
            heatbath.update_links_launch(ODD),
            *(
                matrix_launch("projection.cu", kernel, 100)
                for kernel in ("special_unitary", "unitary", "without_phase")
            ),
            matrix_launch("stout.cu", "smeared_links", 100),
        ]
    )


SPILLING = {
    "norms2<float, 3, 64>": 8,
    "norms2<double, 3, 64>": 8,
    "bicgstab_omega<float, 3, 64>": 32,
    "bicgstab_omega<double, 3, 64>": 32,
    "short_nine_links<32>": 16,
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


def shared(dtype: np.dtype) -> list[Launch]:
    """Of all that several devices share, what is used most."""
    kernels = (*tuned(dtype, (1, 16), (16,)), *wilson(dtype), *of_gauge_links(dtype))
    return [*(kernel for kernel in kernels if kernel.work is not None), *of_grids_in_few(dtype)]


def shared_sums(dtype: np.dtype) -> list[Launch]:
    """Those that compile in a moment: for the quick run."""
    rows = [columns.reduction("cg_residual", 16, dtype, ROWS), cg_update.cg_advance_launch(16, dtype, ROWS)]
    of_links = [signs.signs_launch("boundary_signs", ODD, dtype), heatbath.update_links_launch(ODD)]
    elements = [random_block.fill_random_launch(1000, dtype), checksum.sum_words_launch(1000)]
    sums = [*rows, hisq_dslash.sum_rows_launch(49152, 16)]
    return [*sums, *of_links, *elements] if dtype == SINGLE else []


ENOUGH = 768
"""Threads of a multiprocessor: a share may cost those beyond."""

SPILLS = 112
"""Bytes that a share may spill, of a few instances that have no register left."""

WITHOUT_REGISTERS = ("wilson_dslash.cu", "wilson_update.cu", "aggregation.cu", "wilson_galerkin.cu")
"""Their files."""

SPILLING_SHARES = {
    "hisq_dslash<double, Extents<32, 32, 32, 48>, Tile<4, 4, 2, 1>, Links9, Whole, Whole, 16, 1, 1, 32, "
    "16, 8, 8, false>": 8,
}
"""Instances of other files whose share spills, and bytes."""

FEWER = {"lane_gram<float, 1, 5, 128>": 512, "lane_gram<double, 1, 5, 128>": 512}
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
    (one_link_current.one_link_current_launch, (ODD, 16, DOUBLE)),
]


@pytest.mark.parametrize(("kernel", "arguments"), CHOICES)
def test_every_shape_that_may_be_chosen_compiles(kernel: Callable, arguments: tuple) -> None:
    options = unwrap(kernel)(*arguments)
    assert len(options.shapes) > 1
    for launch, used in usages([options.launch(shape) for shape in options.shapes], "sm_90"):
        assert used.registers * ceil(launch.threads / 32) * 32 <= REGISTERS, (launch.instance, used)
        assert used.shared_bytes + launch.shared_bytes <= SHARED_BYTES, (launch.instance, used)


@pytest.mark.parametrize(("dtype", "n", "limit"), [(SINGLE, 16, 128), (SINGLE, 32, 128), (DOUBLE, 16, 128)])
def test_tuned_dslash_keeps_enough_threads_resident(dtype: np.dtype, n: int, limit: int) -> None:
    kernel = hisq_dslash.dslash_launch(BIG, 16, dtype, n)
    used = compile_only(kernel.file, [kernel.instance], "sm_90")[kernel.instance]
    assert 64 < used.registers <= limit and used.spilled_bytes == 0


@pytest.mark.parametrize(
    "extents", [(4, 4, 4, 4), (6, 10, 14, 6), (34, 4, 6, 2), (2, 2, 2, 2), (26, 22, 38, 46)]
)
def test_dslash_launch_covers_any_lattice(extents: tuple[int, int, int, int]) -> None:
    lattice = Lattice(extents)
    tile = hisq_packing.dslash_tile(lattice)
    halved = (extents[0] // 2, *extents[1:])
    assert all(side % cut == 0 for side, cut in zip(halved, tile, strict=True))
    for dtype in (SINGLE, DOUBLE):
        for n in range(1, MAX_RHS + 1):
            shape, kernel = (
                hisq_dslash.dslash_shape(lattice, dtype, n),
                hisq_dslash.dslash_launch(lattice, 16, dtype, n),
            )
            assert n % shape.rhs_per_thread == 0 and prod(tile) % shape.sites_per_block == 0
            assert kernel.grid[0] * kernel.threads * shape.rhs_per_thread == lattice.half_volume * n
            assert kernel.threads <= 1024 and kernel.shared_bytes <= SHARED_BYTES


def test_matrix_kernels_fit_shared_memory_for_every_shape() -> None:
    for dtype in (SINGLE, DOUBLE):
        for nx in range(1, MAX_RHS + 1):
            for ny in (1, 2, 5, 16, 33, 64):
                for kernel in (
                    block_blas.gram_launch(nx, ny, dtype, 1000),
                    block_blas.multiply_add_launch(nx, ny, dtype, 1000),
                ):
                    assert kernel.threads <= 1024 and kernel.shared_bytes <= SHARED_BYTES, kernel


def test_too_many_right_hand_sides_are_refused() -> None:
    with pytest.raises(InputError, match="1 to 64 right-hand sides, got 65: split the block"):
        hisq_dslash.dslash_launch(BIG, 16, SINGLE, 65)


HUGE = Lattice((128, 128, 128, 256))


@pytest.mark.parametrize(("dtype", "n", "most"), [(SINGLE, 12, 10), (SINGLE, 7, 6), (DOUBLE, 16, 5)])
def test_fields_beyond_the_index_of_the_dslash_are_refused(dtype: np.dtype, n: int, most: int) -> None:
    message = (
        rf"{n} right-hand sides on the lattice 128x128x128x256 .* take fewer right-hand sides, {most} at"
    )
    with pytest.raises(InputError, match=message):
        hisq_dslash.dslash_launch(HUGE, 16, dtype, n)
    hisq_dslash.dslash_launch(HUGE, 16, dtype, most)
    with pytest.raises(InputError, match=r"256x256x256x256 .* take a smaller lattice"):
        hisq_dslash.dslash_launch(Lattice((256, 256, 256, 256)), 16, dtype, n)


@pytest.mark.parametrize(("dtype", "most"), [(SINGLE, 10), pytest.param(DOUBLE, 5, marks=pytest.mark.slow)])
def test_kernels_compile_for_a_huge_lattice(dtype: np.dtype, most: int) -> None:
    for kernel in (
        hisq_dslash.dslash_launch(HUGE, 16, dtype, most),
        one_link_current.one_link_current_launch(HUGE, most, dtype),
        staple.add_staple_launch(HUGE, dtype),
        heatbath.update_links_launch(HUGE),
        long_links.long_links_launch(HUGE, dtype),
        signs.signs_launch("staggered_phases", HUGE, dtype),
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


def test_headers_are_expanded_once_and_no_complex_class_is_used() -> None:
    for file in ("hisq_dslash.cu", "gram.cu", "one_link_current.cu"):
        text = source(file)
        assert "#include" not in text and text.count("struct ComplexOf;") == 1


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_candidates_of_the_dslash_are_launches_of_one_packing(form: hisq_packing.Form) -> None:
    """They start with the shape in use, differ from one another and fit the smallest GPU."""
    for lattice in (BIG, ODD, Lattice((2, 2, 2, 2))):
        for dtype in (SINGLE, DOUBLE) if form.x == "Whole" else (SINGLE,):
            for n in (1, 8, 12, 33, 64):
                shapes = hisq_dslash.candidates(lattice, 16, dtype, n, form)
                assert shapes[0] == hisq_dslash.dslash_shape(lattice, dtype, n, form)
                assert len(shapes) == len(set(shapes)) <= 12
                for shape in shapes:
                    assert shape.tile == hisq_packing.dslash_tile(lattice)
                    launch = hisq_dslash.dslash_in_shape(lattice, 16, dtype, n, shape, form=form)
                    assert launch.threads <= 1024 and launch.shared_bytes <= SHARED_BYTES
