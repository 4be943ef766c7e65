"""Dilution of LapH noise: projectors that partition the indices, their order and labels, refusals."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.distillation.columns import FullColumns, StochasticColumns
from stages.lqcd.distillation.laph_dilution import LaphDilution
from stages.lqcd.distillation.laph_noise import laph_noise
from support.refusals import refuses
from support.source_columns import beginning, coefficients

TIMES, VECTORS = 6, 8
NOISE = {"label": "d.17", "seed": 29, "kind": "u1"}
SCHEMES = [
    (LaphDilution(), 1),
    (LaphDilution("full", "full", "full"), TIMES * 4 * VECTORS),
    (LaphDilution("full", "full", "interlace-4"), TIMES * 4 * 4),
    (LaphDilution("interlace-3", "interlace-2", "interlace-2"), 3 * 2 * 2),
    (LaphDilution("interlace-2", "none", "full"), 2 * VECTORS),
]
schemes = pytest.mark.parametrize(("dilution", "count"), SCHEMES, ids=[str(count) for _, count in SCHEMES])


def columns_of(dilution, noise=(3,)):
    """All subsets of times of noise vectors, one noise vector after the other."""
    times = dilution.subsets(TIMES, VECTORS).time
    sources = tuple((time, number) for number in noise for time in range(times))
    return StochasticColumns(sources, dilution, TIMES, VECTORS, **NOISE)


@schemes
def test_projectors_partition_the_indices(dilution, count):
    """Each index is in one projector; their sum gives the noise back, to the bit."""
    columns = columns_of(dilution, (3, 5))
    assert len(columns) == 2 * count
    for position, number in enumerate((3, 5)):
        rho = coefficients(columns, range(position * count, (position + 1) * count))
        noise = laph_noise("d.17", 29, number, range(TIMES), VECTORS, NOISE["kind"])
        assert np.array_equal(np.count_nonzero(rho, axis=-1), np.ones(noise.shape))
        assert np.array_equal(rho.sum(axis=-1), noise)
        assert (np.count_nonzero(rho, axis=(0, 1, 2)) == noise.size // count).all()


@schemes
def test_blocks_do_not_alter_columns(dilution, count):
    columns = columns_of(dilution, (3, 5))
    whole = coefficients(columns, range(len(columns)))
    for start in range(0, len(columns), 7):
        block = range(start, min(start + 7, len(columns)))
        assert np.array_equal(coefficients(columns, block), whole[..., block.start : block.stop])


@schemes
def test_columns_are_in_the_order_of_their_subsets(dilution, count):
    """Sources slowest, then subsets of spins, then of eigenvectors: indices of these remainders."""
    columns = columns_of(dilution, (3, 5))
    extents = (2, *columns.subsets)
    for number in (2 * count - 1, count, 2 * count // 3):
        rho = coefficients(columns, range(number, number + 1))[..., 0]
        vector, *subsets = np.unravel_index(number, extents)
        remainders = [set(at % total) for at, total in zip(np.nonzero(rho), columns.subsets, strict=True)]
        assert remainders == [{subset} for subset in subsets]
        noise = laph_noise("d.17", 29, (3, 5)[vector], range(TIMES), VECTORS, NOISE["kind"])
        assert np.array_equal(rho[rho != 0], noise[rho != 0])


def test_sources_of_ones_own_choice():
    """Two source times of one noise vector, one of another, in the order given."""
    dilution = LaphDilution("full", "full", "interlace-2")
    columns = StochasticColumns(((4, 7), (1, 7), (4, 2)), dilution, TIMES, VECTORS, **NOISE)
    assert len(columns) == 3 * 4 * 2
    assert [beginning(columns, 8 * source) for source in range(3)] == [(4, 0, 0), (1, 0, 0), (4, 0, 0)]
    assert columns.times(range(8, 16)) == [1] and columns.times(range(24)) == [1, 4]
    for source, (time, number) in enumerate(columns.sources):
        rho = coefficients(columns, range(8 * source, 8 * (source + 1))).sum(axis=-1)
        noise = laph_noise("d.17", 29, number, range(TIMES), VECTORS, NOISE["kind"])
        assert np.array_equal(rho[time], noise[time]) and np.count_nonzero(rho) == noise[time].size


def test_sum_over_projectors_estimates_one():
    """sum_d P_d rho (P_d rho)^H: 1 on average, exactly 1 for elements between subsets and on the diagonal."""
    samples, times, vectors = 600, 2, 6
    dilution = LaphDilution("full", "interlace-2", "interlace-3")
    sources = tuple((time, number) for number in range(samples) for time in range(times))
    columns = StochasticColumns(sources, dilution, times, vectors, **NOISE)
    count, size = len(columns) // samples, times * 4 * vectors
    total = np.zeros((size, size), complex)
    for n in range(samples):
        rho = coefficients(columns, range(n * count, (n + 1) * count)).reshape(size, count)
        total += rho @ rho.conj().T
    mean = total / samples
    same = np.zeros((size, size), bool)
    for column in (coefficients(columns, range(count)) != 0).reshape(size, count).T:
        same |= np.outer(column, column)
    assert np.abs(np.diag(mean) - 1).max() < 1e-14
    assert not mean[~same].any()
    noisy = np.abs(mean[same & ~np.eye(size, dtype=bool)])
    assert len(noisy) and noisy.max() < 5 / np.sqrt(samples)
    assert 0.8 / np.sqrt(samples) < np.sqrt(np.mean(noisy**2)) < 1.2 / np.sqrt(samples)


def test_full_dilution_has_no_noise():
    rho = coefficients(columns_of(SCHEMES[1][0]), range(SCHEMES[1][1])).reshape(TIMES * 4 * VECTORS, -1)
    assert np.abs(rho @ rho.conj().T - np.eye(len(rho))).max() < 1e-15


def test_full_distillation_columns():
    """One at (time, spin, eigenvector), in this order, on the source times alone."""
    columns = FullColumns((4, 1), TIMES, VECTORS)
    assert len(columns) == 2 * 4 * VECTORS
    rho = coefficients(columns, range(len(columns)))
    assert np.array_equal(rho[[4, 1]].reshape(len(columns), -1), np.eye(len(columns)))
    assert not rho[[0, 2, 3, 5]].any()
    assert beginning(columns, 4 * VECTORS + 2 * VECTORS + 5) == (1, 2, 5)
    assert beginning(columns, 6) == (4, 0, 6)


@pytest.mark.parametrize(
    ("dilution", "said"),
    [
        (("interlace-4", "none", "none"), "dilution.time = interlace-4 does not divide the 6 time slices"),
        (("none", "interlace-3", "none"), "dilution.spin = interlace-3 does not divide the 4 spins"),
        (
            ("none", "none", "interlace-16"),
            r"interlace-16 does not divide the 8 eigenvectors: take a divisor",
        ),
    ],
)
def test_dilution_that_does_not_divide(dilution, said):
    refuses(said, StochasticColumns, ((0, 0),), LaphDilution(*dilution), TIMES, VECTORS, **NOISE)


@pytest.mark.parametrize("value", ["interlace-0", "interlace8", "half", 4, None])
def test_dilution_that_is_none(value):
    with pytest.raises(InputError, match=r"dilution.spin must be 'full', 'none' or, .* got"):
        LaphDilution.parse({"time": "full", "spin": value})


def test_refusals():
    assert LaphDilution.parse(None) == LaphDilution("none", "none", "none")
    with pytest.raises(
        InputError, match="unknown dilution option 'eigenvectors': did you mean 'eigenvector'"
    ):
        LaphDilution.parse({"eigenvectors": "full"})
    with pytest.raises(InputError, match="one of z2, z4, u1, got 'z3'"):
        StochasticColumns(((0, 0),), LaphDilution(), TIMES, VECTORS, "a", 1, "z3")
    with pytest.raises(
        InputError, match=r"t = 3 is none of the 3 subsets of times that .* = interlace-3 makes"
    ):
        StochasticColumns(((3, 0),), LaphDilution("interlace-3"), TIMES, VECTORS, **NOISE)
    refuses("t = 6 is outside 6 time slices", FullColumns, (0, 6), TIMES, VECTORS)
    for make in (
        lambda: FullColumns((0,), TIMES, 0),
        lambda: StochasticColumns(((0, 0),), LaphDilution(), TIMES, 0, **NOISE),
    ):
        refuses("eigenvectors of columns must be a whole number of at least 1, got 0", make)
    with pytest.raises(InputError, match="there are 1 columns, numbered from 0, got column 1"):
        columns_of(LaphDilution()).times(range(1, 2))
