"""Launches cover lattices of any extents, fit an A100, and refuse what no index reaches."""

from math import prod

import numpy as np
import pytest

pytest.importorskip("cupy", reason="compiling the CUDA sources needs cupy and nvidia-cuda-nvrtc")

from cuda_launches import BIG, DOUBLE, HUGE, ODD, SHARED_BYTES, SINGLE

from stages.base.errors import InputError
from stages.lqcd.kernels.cuda import block_blas, hisq_dslash
from stages.lqcd.kernels.cuda.launch import MAX_RHS
from stages.lqcd.lattice.geometry import Lattice

pytestmark = pytest.mark.nvrtc

FORMS = [*hisq_dslash.FORMS.values(), hisq_dslash.ShortLinks9(20)]


@pytest.mark.parametrize(
    "extents", [(4, 4, 4, 4), (6, 10, 14, 6), (34, 4, 6, 2), (2, 2, 2, 2), (26, 22, 38, 46)]
)
def test_dslash_launch_covers_any_lattice(extents: tuple[int, int, int, int]) -> None:
    lattice = Lattice(extents)
    tile = hisq_dslash.dslash_tile(lattice)
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
                    block_blas.gram_launch(nx, ny, dtype, 1000, DOUBLE, 8),
                    block_blas.multiply_add_launch(nx, ny, dtype, 1000),
                    block_blas.multiply_add_launch(nx, ny, dtype, 1000, DOUBLE),
                ):
                    assert kernel.threads <= 1024 and kernel.shared_bytes <= SHARED_BYTES, kernel


def test_too_many_right_hand_sides_are_refused() -> None:
    with pytest.raises(InputError, match="1 to 64 right-hand sides, got 65: split the block"):
        hisq_dslash.dslash_launch(BIG, 16, SINGLE, 65)


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


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_of_the_dslash_takes_one_packing(form: hisq_dslash.Links18) -> None:
    """All widths read links of the same tiles, and fit the smallest GPU."""
    for lattice in (BIG, ODD, Lattice((2, 2, 2, 2))):
        for dtype in (SINGLE,) if form.short else (SINGLE, DOUBLE):
            for n in (1, 8, 12, 33, 64):
                assert hisq_dslash.dslash_shape(lattice, dtype, n, form).tile == hisq_dslash.dslash_tile(
                    lattice
                )
                launch = hisq_dslash.dslash_launch(lattice, 16, dtype, n, form=form)
                assert launch.threads <= 1024 and launch.shared_bytes <= SHARED_BYTES
