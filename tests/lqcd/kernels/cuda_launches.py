"""Launches of the CUDA kernels, by what they are for: tests compile them without a device."""

from collections.abc import Callable, Sequence

import numpy as np

from stages.lqcd.kernels.aggregation import MOST_ON_GPU
from stages.lqcd.kernels.cuda import (
    aggregation,
    bicgstab_update,
    block_blas,
    block_cg,
    cg_update,
    checksum,
    clover,
    coarse_dslash,
    columns,
    half_update,
    heatbath,
    hisq_dslash,
    lane_blas,
    link_fields,
    random_numbers,
    short_numbers,
    slice_products,
    smearing,
    stream,
    wilson_dslash,
    wilson_galerkin,
    wilson_update,
)
from stages.lqcd.kernels.cuda.launch import Launch, matrix_launch
from stages.lqcd.lattice.geometry import Lattice

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)
REGISTERS = 65536
"""Of a multiprocessor."""
SHARED_BYTES = 163 * 1024
"""Shared memory of a block on an A100."""
BIG = Lattice((32, 32, 32, 48))
ODD = Lattice((14, 6, 10, 4))
HUGE = Lattice((128, 128, 128, 256))
WIDTHS = (1, 3, 8, 16, 33, 64)
UNUSUAL = [(1, 1), (3, 3), (7, 33), (64, 1), (1, 64)]
SHORT, SHORT20 = hisq_dslash.SHORT_NINE, hisq_dslash.ShortLinks9(20)
WILSON_FORMS = [wilson_dslash.FULL, wilson_dslash.TWELVE, wilson_dslash.IN_FIELDS]
ROWS = 3 * BIG.half_volume
Kernels = Callable[[np.dtype], list[Launch]]


def dslashes(dtype: np.dtype, widths: Sequence[int] = WIDTHS) -> list[Launch]:
    """The dslash in the forms that are used."""
    full = [hisq_dslash.dslash_launch(BIG, 16, dtype, n, dots) for n in widths for dots in (False, True)]
    if dtype == DOUBLE:
        in_fields = hisq_dslash.IN_FIELDS
        forms = (*((n, hisq_dslash.NINE) for n in (1, 4)), (1, in_fields), (16, in_fields))
        return [*full, *(hisq_dslash.dslash_launch(BIG, 16, dtype, n, form=form) for n, form in forms)]
    nine = ((n, hisq_dslash.NINE) for n in (1, 2, 4, 8))
    forms = (*nine, *((n, form) for n in (1, 2, 4) for form in (SHORT, SHORT20)))
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
            link_fields.weighted_links_launch(ODD, dtype, wilson_dslash.wilson_tile(ODD), rows)
            for rows in (2, 3)
        ),
        clover.clover_multiply_launch(1000, dtype, 16),
        *twisted(dtype),
    ]


def twisted(dtype: np.dtype) -> list[Launch]:
    """Products with all elements of clover matrices, and with their adjoints."""
    hop, diagonal = (
        tuple(place + 4 * kind for kind in (1, 2))
        for place in (wilson_dslash.HOP_CLOVER, wilson_dslash.DIAGONAL_CLOVER)
    )
    launch, half = wilson_dslash.wilson_dslash_launch, wilson_dslash.HALF
    in_half = [
        *(launch(BIG, SINGLE, 16, sign, hop[sign < 0], fields=half) for sign in (1, -1)),
        wilson_update.wilson_update_launch(
            BIG, SINGLE, 16, hop[0], wilson_dslash.TWELVE, "Half", "Half", "Half"
        ),
        half_update.half_norms_launch(16, BIG.half_volume, True, 2),
    ]
    return [
        *(launch(BIG, dtype, 16, sign, hop[sign < 0]) for sign in (1, -1)),
        launch(BIG, dtype, 1, 1, hop[0], wilson_dslash.TWELVE),
        launch(BIG, dtype, 8, 1, diagonal[1]),
        *(clover.clover_multiply_launch(1000, dtype, 16, kind) for kind in (1, 2)),
        *(in_half if dtype == SINGLE else []),
    ]


def half_spinors(n: int) -> list[Launch]:
    """What BiCGstab in half precision takes, and the adjoint of its products."""
    sites, place = BIG.half_volume, wilson_dslash.HOP_CLOVER
    return [
        *(
            wilson_dslash.wilson_dslash_launch(BIG, SINGLE, n, 1, place, form, wilson_dslash.HALF)
            for form in (wilson_dslash.FULL, wilson_dslash.TWELVE)
        ),
        *(
            wilson_dslash.wilson_dslash_launch(BIG, SINGLE, n, -1, where, fields=wilson_dslash.HALF)
            for where in (wilson_dslash.NO_CLOVER, place)
        ),
        *(half_update.half_reduction_launch(name, n, sites) for name in half_update.SUMS),
        *(half_update.half_update_launch(n, sites, fields) for fields in (1, 2)),
    ]


def half_cg(widths: Sequence[int]) -> list[Launch]:
    """What conjugate gradients in half precision take beside the dslash."""
    sites = BIG.half_volume
    return [
        *(
            launch(n, sites)
            for launch in (cg_update.half_advance_launch, cg_update.half_step_launch)
            for n in widths
        ),
        *(half_update.half_norms_launch(n, sites, clover) for clover in (False, True) for n in widths),
    ]


def half_directions(n: int) -> list[Launch]:
    """What GCR with directions in 16 bits takes."""
    sites = BIG.half_volume
    return [
        *(half_update.half_basis_dots_launch(n, sites, fields) for fields in (*half_update.DOTTED, 9)),
        *(half_update.half_basis_update_launch(name, n, sites, 7) for name in half_update.BASIS_SUMS),
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
        *(
            short_numbers.half_conversion_launch(1000, n, to_half)
            for n in (1, 6)
            for to_half in (True, False)
        ),
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
        *filter(None, (block_cg.block_step_launch(n, dtype, ROWS, True) for n in blocks if n <= 32)),
        *filter(None, (block_cg.iteration_grams_launch(n, dtype, ROWS) for n in blocks if n <= 32)),
        *(columns.reduction(kernel, n, dtype, ROWS) for kernel in columns.REDUCTIONS for n in widths),
        *(cg_update.cg_advance_launch(n, dtype, ROWS) for n in widths),
        *(lane_blas.lane_gram_launch(n, dtype, ROWS, 5) for n in (1, 8, 24, 33)),
        lane_blas.lane_least_squares_launch(16, 5),
        *(lane_blas.lane_dots_launch(n, dtype, ROWS, 10) for n in widths),
        *(lane_blas.lane_update_launch(n, dtype, ROWS, 10) for n in widths),
        *(
            bicgstab_update.bicgstab_launch(sums, n, dtype, ROWS)
            for sums in bicgstab_update.SUMS
            for n in widths
        ),
        *(lane_blas.lane_polynomial_launch(n, dtype, ROWS, 3) for n in widths),
        *(slice_products.one_link_current_launch(ODD, n, dtype) for n in widths),
        smearing.add_staple_launch(ODD, dtype),
        link_fields.long_links_launch(ODD, dtype),
        link_fields.signs_launch("staggered_phases", ODD, dtype),
        link_fields.signs_launch("boundary_signs", ODD, dtype),
        link_fields.weighted_links_launch(ODD, dtype, hisq_dslash.dslash_tile(ODD), 3, 6),
        link_fields.doubled_links_launch(ODD, 16, dtype, hisq_dslash.dslash_tile(ODD)),
        *([*short_vectors(), *half_cg(widths)] if dtype == SINGLE else []),
        *(kernel for n in widths if dtype == SINGLE for kernel in half_directions(n)),
        clover.field_strength_launch(ODD, dtype),
        clover.add_clover_launch(1000, dtype),
        random_numbers.noise_launch("noise_roots", ODD, 5, dtype),
        random_numbers.noise_launch("noise_gaussian", ODD, 5, dtype),
        random_numbers.fill_random_launch(1000, dtype),
        checksum.sum_words_launch(1000),
        block_blas.sum_partials_launch(128),
        slice_products.add_runs_launch(8192, 48, dtype),
        slice_products.slice_shift_launch(ODD, dtype, 0, 1, 1680, 64),
        slice_products.slice_shift_launch(ODD, dtype, 2, -1, 1680, 3),
        stream.REPORT,
        *(hisq_dslash.sum_rows_launch(49152, n) for n in widths),
    ]


def short_vectors(widths: Sequence[int] = WIDTHS) -> list[Launch]:
    """Kernels on short fields beside the dslash."""
    return [
        hisq_dslash.nine_links_launch(9, 32, SINGLE, short=True),
        *(cg_update.short_advance_launch(n, ROWS // 3) for n in widths),
        *(cg_update.short_residual_launch(n, ROWS // 3) for n in widths),
        *(
            short_numbers.short_conversion_launch(kernel, 1000, n, bits)
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
    return [
        *(hisq_dslash.dslash_launch(ODD, directions, dtype, n) for directions in (16, 8, 6) for n in (8, 33)),
        *(
            hisq_dslash.dslash_launch(ODD, directions, dtype, n, True)
            for directions in (16, 8)
            for n in (56, 33)
        ),
        *(
            hisq_dslash.dslash_launch(ODD, 16, dtype, n, dots, hisq_dslash.NINE)
            for n in (1, 8, 33)
            for dots in (False, True)
        ),
        *(hisq_dslash.nine_links_launch(9, sites, dtype, short=False) for sites in (2, 30)),
        *(hisq_dslash.dslash_launch(ODD, 16, SINGLE, n, True, SHORT20) for n in (1, 33)),
        *(block_blas.gram_launch(nx, ny, dtype, ROWS) for nx, ny in UNUSUAL),
        *(block_blas.multiply_add_launch(nx, ny, dtype, ROWS) for nx, ny in UNUSUAL),
        *(block_blas.multiply_add_launch(64, n, dtype, ROWS, DOUBLE, 8) for n in (1, 16, 64)),
        *(block_blas.gram_launch(64, n, dtype, ROWS, DOUBLE, 8) for n in (1, 12, 64)),
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
            coarse_dslash.half_coarse_dslash_launch(c, n, 8, v)
            for c, v in ((20, 4096), (48, 4096), (64, 256), (128, 16))
            for n in widths
        ),
        *(coarse_dslash.half_tiles_launch(c, d, 16) for c, d in ((20, 8), (48, 8), (64, 16), (128, 1))),
        *(
            wilson_galerkin.wilson_galerkin_launch(k, mu, 256, 256)
            for k in (8, 16, 24, 32)
            for mu in range(5)
        ),
        wilson_galerkin.places_launch(4096),
        *(coarse_dslash.backward_links_launch(n, dtype, 4096) for n in (16, 48, 64, 82)),
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
