"""Every CUDA kernel compiles for three generations of GPUs without a device; no tuned one spills."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from inspect import unwrap
from math import ceil, prod

import numpy as np
import pytest

pytest.importorskip("cupy", reason="compiling the CUDA sources needs cupy and nvidia-cuda-nvrtc")

from nvrtc_compiler import Usage, compile_only

from stages.errors import InputError
from stages.lqcd.kernels.cuda.compile import source
from stages.lqcd.kernels.cuda.launch import aggregation as aggregation_shapes
from stages.lqcd.kernels.cuda.launch import block_blas as block_shapes
from stages.lqcd.kernels.cuda.launch import block_cg as block_cg_shapes
from stages.lqcd.kernels.cuda.launch import coarse as coarse_shapes
from stages.lqcd.kernels.cuda.launch import columns
from stages.lqcd.kernels.cuda.launch import dslash as dslash_shapes
from stages.lqcd.kernels.cuda.launch import gauge as gauge_shapes
from stages.lqcd.kernels.cuda.launch import random_numbers as random_shapes
from stages.lqcd.kernels.cuda.launch import slice_products as slice_shapes
from stages.lqcd.kernels.cuda.launch import slice_shift as shift_shapes
from stages.lqcd.kernels.cuda.launch import wilson as wilson_shapes
from stages.lqcd.kernels.cuda.launch.base import MAX_RHS, Launch
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
FORMS = [dslash_shapes.FULL, dslash_shapes.THIRTEEN, dslash_shapes.HALF, dslash_shapes.HALF_TO_SINGLE]
WILSON_FORMS = [wilson_shapes.FULL, wilson_shapes.TWELVE, wilson_shapes.EIGHT]
ROWS = 3 * BIG.half_volume
Kernels = Callable[[np.dtype], list[Launch]]


def dslashes(dtype: np.dtype, widths: Sequence[int] = WIDTHS) -> list[Launch]:
    """The dslash in the forms that are used."""
    full = [dslash_shapes.dslash(BIG, 16, dtype, n, dots) for n in widths for dots in (False, True)]
    if dtype == DOUBLE:
        return full
    forms = (
        *((n, dslash_shapes.THIRTEEN) for n in (1, 8)),
        *((16, form) for form in (dslash_shapes.HALF, dslash_shapes.HALF_TO_SINGLE)),
    )
    return [*full, *(dslash_shapes.dslash(BIG, 16, dtype, n, form=form) for n, form in forms)]


def wilson(dtype: np.dtype) -> list[Launch]:
    """The Wilson dslash and its relatives in what is used most."""
    shapes = wilson_shapes
    return [
        shapes.wilson_dslash(BIG, dtype, 16, 1, shapes.HOP_CLOVER),
        shapes.wilson_dslash(BIG, dtype, 8, -1, shapes.DIAGONAL_CLOVER, shapes.TWELVE),
        *([shapes.wilson_dslash(BIG, SINGLE, 16, 1, fields=shapes.HALF)] if dtype == SINGLE else []),
        shapes.wilson_dslash(ODD, dtype, 1, 1, form=shapes.EIGHT),
        shapes.wilson_hop(ODD, dtype, 24, 7, -1),
        shapes.clover_multiply(1000, dtype, 16),
    ]


def unusual_wilson(dtype: np.dtype) -> list[Launch]:
    """Every width, form and place of clover matrices."""
    shapes = wilson_shapes
    return [
        *(shapes.wilson_dslash(BIG, dtype, n, 1, shapes.HOP_CLOVER) for n in WIDTHS),
        *(shapes.wilson_dslash(BIG, dtype, 16, -1, clover) for clover in (0, 1, 2)),
        *(shapes.wilson_dslash(ODD, dtype, n, form=form) for n in (1, 3, 8) for form in WILSON_FORMS),
        *(shapes.wilson_hop(ODD, dtype, 3, direction, 1) for direction in range(8)),
        *(shapes.clover_multiply(1000, dtype, n) for n in (1, 3, 8)),
        *(shapes.wilson_dslash(ODD, SINGLE, n, -1, 1, fields=shapes.HALF_TO_SINGLE) for n in (1, 8, 33)),
        *(dslash_shapes.half_conversion(1000, 12, n, to_half) for n in (1, 6) for to_half in (True, False)),
    ]


def tuned(
    dtype: np.dtype, widths: Sequence[int] = WIDTHS, blocks: Sequence[int] = (8, 16, 24, 32, 64)
) -> list[Launch]:
    """The instances whose speed matters: block widths that are multiples of 8, and everything per column."""
    return [
        *dslashes(dtype, widths),
        *(block_shapes.gram(n, n, dtype, ROWS) for n in blocks if n != 24),
        *(block_shapes.multiply_add(n, n, dtype, ROWS) for n in blocks if n != 24),
        *(block_cg_shapes.block_step(n, dtype, ROWS) for n in blocks if n <= 32),
        *(block_cg_shapes.iteration_grams(n, dtype, ROWS) for n in blocks if n <= 32),
        *(columns.reduction(kernel, n, dtype, ROWS) for kernel in columns.REDUCTIONS for n in widths),
        *(columns.cg_advance(n, dtype, ROWS) for n in widths),
        *(columns.lane_gram(n, dtype, ROWS, 5) for n in (1, 8, 24, 33)),
        columns.lane_least_squares(16, 5),
        *(columns.lane_dots(n, dtype, ROWS, 10) for n in widths),
        *(columns.lane_update(n, dtype, ROWS, 10) for n in widths),
        *(columns.lane_polynomial(n, dtype, ROWS, 3) for n in widths),
        *(columns.one_link_current(ODD, n, dtype) for n in widths),
        gauge_shapes.add_staple(ODD, dtype),
        gauge_shapes.long_links(ODD, dtype),
        gauge_shapes.signs("staggered_phases", ODD, dtype),
        gauge_shapes.signs("boundary_signs", ODD, dtype),
        gauge_shapes.doubled_links(ODD, 16, dtype),
        gauge_shapes.field_strength(ODD, dtype),
        gauge_shapes.add_clover(1000, dtype),
        random_shapes.noise("noise_roots", ODD, 5, dtype),
        random_shapes.noise("noise_gaussian", ODD, 5, dtype),
        random_shapes.fill_random(1000, dtype),
        columns.sum_partials(128),
        slice_shapes.add_runs(8192, 48, dtype),
        shift_shapes.slice_shift(ODD, dtype, 0, 1, 1680, 64),
        shift_shapes.slice_shift(ODD, dtype, 2, -1, 1680, 3),
        DELAY,
        columns.REPORT,
        *(columns.sum_rows(49152, n) for n in widths),
    ]


def in_single(dtype: np.dtype) -> list[Launch]:
    """Those of `tuned` in the precision that most of the time goes to, in few widths: for the quick run."""
    return tuned(dtype, (1, 33), (16,)) if dtype == SINGLE else []


def unusual(dtype: np.dtype) -> list[Launch]:
    """Instances that must be right rather than fast."""
    return [
        *(dslash_shapes.dslash(ODD, directions, dtype, n) for directions in (16, 8, 6) for n in (8, 33)),
        *(dslash_shapes.dslash(ODD, directions, dtype, n, True) for directions in (16, 8) for n in (56, 33)),
        *(dslash_shapes.dslash(ODD, 16, dtype, n, form=dslash_shapes.THIRTEEN) for n in (1, 8, 33)),
        *(dslash_shapes.dslash(ODD, 8, SINGLE, n, form=dslash_shapes.HALF) for n in (1, 12, 33)),
        dslash_shapes.dslash(BIG, 16, SINGLE, 32, form=dslash_shapes.HALF),  # spills 16 bytes on sm_100
        *(dslash_shapes.half_conversion(1000, 3, n, to_half) for n in (1, 6, 8) for to_half in (True, False)),
        *(block_shapes.gram(nx, ny, dtype, ROWS) for nx, ny in UNUSUAL),
        *(block_shapes.multiply_add(nx, ny, dtype, ROWS) for nx, ny in UNUSUAL),
        *(block_cg_shapes.step_coefficients(n, n) for n in (1, 16, 64)),
    ]


def usages(kernels: list[Launch], arch: str) -> Iterator[tuple[Launch, Usage]]:
    """Compile kernels for an architecture, one program a file, and pair them with what they use."""
    by_file = defaultdict(list)
    for kernel in kernels:
        by_file[kernel.file].append(kernel)
    for file, instances in by_file.items():
        usage = compile_only(file, [kernel.instance for kernel in instances], arch)
        yield from ((kernel, usage[kernel.instance]) for kernel in instances)


def of_grids(dtype: np.dtype, widths: Sequence[int] = (1, 5, 16, 64)) -> list[Launch]:
    """Kernels of multigrid, which exist in single precision alone."""
    if dtype == DOUBLE:
        return []
    return [
        *(
            coarse_shapes.coarse_dslash(c, n, 9, v)
            for c, v in ((20, 4096), (48, 4096), (64, 16))
            for n in widths
        ),
        *(aggregation_shapes.gram(n, 256) for n in (1, 5, 24, 32)),
        *(aggregation_shapes.restrict(c, 24, n, a) for c in (6, 24) for n in widths for a in (256, 4096)),
        *(aggregation_shapes.add_prolonged(c, 24, n, 256, 256) for c in (6, 24) for n in widths),
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
            gauge_shapes.update_links(ODD),
            *(
                gauge_shapes.matrices("projection.cu", kernel, 100)
                for kernel in ("special_unitary", "unitary", "without_phase")
            ),
            gauge_shapes.matrices("stout.cu", "smeared_links", 100),
        ]
    )


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("kernels", "spills"),
    [
        (in_single, 0),
        pytest.param(tuned, 0, marks=pytest.mark.slow),
        (wilson, 192),
        pytest.param(unusual_wilson, 256, marks=pytest.mark.slow),
        pytest.param(unusual, 64, marks=pytest.mark.slow),
        (of_gauge_links, 0),
        (of_grids_in_few, 0),
        pytest.param(of_grids, 0, marks=pytest.mark.slow),
    ],
)
def test_kernels_compile(kernels: Kernels, spills: int, arch: str, dtype: np.dtype) -> None:
    for kernel, used in usages(kernels(dtype), arch):
        assert used.spilled_bytes <= spills, (kernel.instance, used)
        assert used.registers * ceil(kernel.threads / 32) * 32 <= REGISTERS, (kernel.instance, used)
        assert used.shared_bytes + kernel.shared_bytes <= SHARED_BYTES, (kernel.instance, used)


CHOICES = [
    pytest.param(dslash_shapes.dslash, (BIG, 16, SINGLE, 16), marks=pytest.mark.slow),
    pytest.param(dslash_shapes.dslash, (BIG, 16, DOUBLE, 8), marks=pytest.mark.slow),
    pytest.param(
        wilson_shapes.wilson_dslash, (BIG, SINGLE, 16, 1, wilson_shapes.HOP_CLOVER), marks=pytest.mark.slow
    ),
    pytest.param(block_shapes.gram, (16, 16, SINGLE, ROWS), marks=pytest.mark.slow),
    pytest.param(block_shapes.gram, (12, 12, DOUBLE, ROWS), marks=pytest.mark.slow),
    (block_shapes.multiply_add, (16, 16, SINGLE, ROWS)),
    pytest.param(block_shapes.multiply_add, (32, 32, DOUBLE, ROWS), marks=pytest.mark.slow),
    (block_cg_shapes.block_step, (16, DOUBLE, ROWS)),
    pytest.param(block_cg_shapes.iteration_grams, (16, SINGLE, ROWS), marks=pytest.mark.slow),
    (columns.reduction, ("dots", 16, SINGLE, ROWS)),
    (columns.reduction, ("norms2", 1, DOUBLE, ROWS)),
    (columns.cg_advance, (16, SINGLE, ROWS)),
    (columns.lane_dots, (16, SINGLE, ROWS, 3)),
    (columns.lane_update, (16, DOUBLE, ROWS, 2)),
    (columns.lane_polynomial, (16, SINGLE, ROWS, 3)),
    (columns.one_link_current, (ODD, 16, DOUBLE)),
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
    kernel = dslash_shapes.dslash(BIG, 16, dtype, n)
    used = compile_only(kernel.file, [kernel.instance], "sm_90")[kernel.instance]
    assert 64 < used.registers <= limit and used.spilled_bytes == 0


@pytest.mark.parametrize(
    "extents", [(4, 4, 4, 4), (6, 10, 14, 6), (34, 4, 6, 2), (2, 2, 2, 2), (26, 22, 38, 46)]
)
def test_dslash_launch_covers_any_lattice(extents: tuple[int, int, int, int]) -> None:
    lattice = Lattice(extents)
    tile = dslash_shapes.dslash_tile(lattice)
    halved = (extents[0] // 2, *extents[1:])
    assert all(side % cut == 0 for side, cut in zip(halved, tile, strict=True))
    for dtype in (SINGLE, DOUBLE):
        for n in range(1, MAX_RHS + 1):
            shape, kernel = (
                dslash_shapes.dslash_shape(lattice, dtype, n),
                dslash_shapes.dslash(lattice, 16, dtype, n),
            )
            assert n % shape.rhs_per_thread == 0 and prod(tile) % shape.sites_per_block == 0
            assert kernel.grid[0] * kernel.threads * shape.rhs_per_thread == lattice.half_volume * n
            assert kernel.threads <= 1024 and kernel.shared_bytes <= SHARED_BYTES


def test_matrix_kernels_fit_shared_memory_for_every_shape() -> None:
    for dtype in (SINGLE, DOUBLE):
        for nx in range(1, MAX_RHS + 1):
            for ny in (1, 2, 5, 16, 33, 64):
                for kernel in (
                    block_shapes.gram(nx, ny, dtype, 1000),
                    block_shapes.multiply_add(nx, ny, dtype, 1000),
                ):
                    assert kernel.threads <= 1024 and kernel.shared_bytes <= SHARED_BYTES, kernel


def test_block_iteration_fits_an_a100_in_every_candidate() -> None:
    for dtype in (SINGLE, DOUBLE):
        for n in range(1, MAX_RHS + 1):
            steps = [
                block_cg_shapes.block_step_in_shape(n, dtype, 9999, shape)
                for shape in block_cg_shapes.step_candidates(n, dtype)
            ]
            grams = [
                block_cg_shapes.iteration_grams_in_shape(n, dtype, 9999, shape)
                for shape in block_cg_shapes.grams_candidates(n, dtype)
            ]
            assert len(steps) <= 12 and len(grams) <= 12
            assert (bool(steps), bool(grams)) == (True, True) or n % 8 or n > 32
            for kernel in (*steps, *grams, block_cg_shapes.step_coefficients(n, n)):
                assert kernel.threads <= 1024 and kernel.shared_bytes <= SHARED_BYTES, kernel


def test_too_many_right_hand_sides_are_refused() -> None:
    with pytest.raises(InputError, match="1 to 64 right-hand sides, got 65: split the block"):
        dslash_shapes.dslash(BIG, 16, SINGLE, 65)


HUGE = Lattice((128, 128, 128, 256))


@pytest.mark.parametrize(("dtype", "n", "most"), [(SINGLE, 12, 10), (SINGLE, 7, 6), (DOUBLE, 16, 5)])
def test_fields_beyond_the_index_of_the_dslash_are_refused(dtype: np.dtype, n: int, most: int) -> None:
    message = (
        rf"{n} right-hand sides on the lattice 128x128x128x256 .* take fewer right-hand sides, {most} at"
    )
    with pytest.raises(InputError, match=message):
        dslash_shapes.dslash(HUGE, 16, dtype, n)
    dslash_shapes.dslash(HUGE, 16, dtype, most)
    with pytest.raises(InputError, match=r"256x256x256x256 .* take a smaller lattice"):
        dslash_shapes.dslash(Lattice((256, 256, 256, 256)), 16, dtype, n)


@pytest.mark.parametrize(("dtype", "most"), [(SINGLE, 10), pytest.param(DOUBLE, 5, marks=pytest.mark.slow)])
def test_kernels_compile_for_a_huge_lattice(dtype: np.dtype, most: int) -> None:
    for kernel in (
        dslash_shapes.dslash(HUGE, 16, dtype, most),
        columns.one_link_current(HUGE, most, dtype),
        gauge_shapes.add_staple(HUGE, dtype),
        gauge_shapes.update_links(HUGE),
        gauge_shapes.long_links(HUGE, dtype),
        gauge_shapes.signs("staggered_phases", HUGE, dtype),
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
def test_candidates_of_the_dslash_are_launches_of_one_packing(form: dslash_shapes.Form) -> None:
    """They start with the shape in use, differ from one another and fit the smallest GPU."""
    for lattice in (BIG, ODD, Lattice((2, 2, 2, 2))):
        for dtype in (SINGLE, DOUBLE) if form.x == "Whole" else (SINGLE,):
            for n in (1, 8, 12, 33, 64):
                shapes = dslash_shapes.candidates(lattice, 16, dtype, n, form)
                assert shapes[0] == dslash_shapes.dslash_shape(lattice, dtype, n, form)
                assert len(shapes) == len(set(shapes)) <= 12
                for shape in shapes:
                    assert shape.tile == dslash_shapes.dslash_tile(lattice)
                    launch = dslash_shapes.dslash_in_shape(lattice, 16, dtype, n, shape, form=form)
                    assert launch.threads <= 1024 and launch.shared_bytes <= SHARED_BYTES
