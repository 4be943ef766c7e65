"""Dilution: partitions of the lattice, their counts, the diluted columns, and refusals."""

import tracemalloc

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise.dilution import Dilution, Subset, dilute
from stages.lqcd.noise.vectors import noise_vectors

LATTICE = Lattice((4, 8, 12, 16))
CASES = [
    ({}, 2),
    ({"color": True}, 6),
    ({"time": 4}, 8),
    ({"time": "full"}, 32),
    ({"displacement": 2}, 16),
    ({"displacement": 4}, 256),
    ({"color": True, "displacement": 2}, 48),
    ({"time": 4, "displacement": 2}, 32),
    ({"color": True, "time": "full", "displacement": 2}, 3 * 16 * 8),
]


@pytest.mark.parametrize(("options", "count"), CASES)
def test_number_of_subsets(options, count):
    assert len(Dilution.parse(options).subsets(LATTICE)) == count


@pytest.mark.parametrize(("options", "count"), CASES)
def test_every_site_and_colour_is_in_the_one_subset_that_describes_it(options, count):
    for parity in (EVEN, ODD):
        partition = Dilution.parse(options).partition(LATTICE, parity)
        x, y, z, t = LATTICE.coordinates(parity).T
        members = np.zeros((LATTICE.half_volume, 3), int)
        for number, subset in enumerate(partition.subsets):
            inside = np.ones((LATTICE.half_volume, 3), bool)
            if subset.colour is not None:
                inside &= np.arange(3) == subset.colour
            if subset.time is not None:
                period = 16 if options["time"] == "full" else options["time"]
                inside &= (t % period == subset.time)[:, None]
            if subset.displacement is not None:
                residue = np.stack([x, y, z, t], axis=-1) % options["displacement"]
                inside &= (residue == subset.displacement).all(axis=1)[:, None]
            assert subset.parity == parity
            assert np.array_equal(inside, partition.member == number)
            members += inside
        assert np.all(members == 1)


def test_two_to_the_four_displacement_is_eight_even_and_eight_odd_corners():
    subsets = Dilution(displacement=2).subsets(LATTICE)
    assert [subset.parity for subset in subsets] == [EVEN] * 8 + [ODD] * 8
    assert Subset(EVEN, None, None, (1, 1, 0, 0)) in subsets
    assert all(sum(subset.displacement) % 2 == subset.parity for subset in subsets)


def test_odd_displacement_is_cut_by_parity():
    lattice = Lattice((6, 6, 6, 6))
    assert len(Dilution(displacement=3).subsets(lattice)) == 2 * 81


def test_memory_follows_the_sites_not_the_combinations():
    """16^5 combinations of displacement and slice, a million, of which 32768 hold a site of this parity."""
    lattice = Lattice((16, 16, 16, 16))
    lattice.coordinates(EVEN)
    tracemalloc.start()
    partition = Dilution(time="full", displacement=16).partition(lattice, EVEN)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(partition.subsets) == lattice.half_volume
    assert peak < 400 * lattice.half_volume


@pytest.mark.parametrize("block", [1, 5, 48])
def test_columns_sum_to_the_noise_whatever_the_block(block):
    dilution = Dilution(color=True, displacement=2)
    noise = noise_vectors(LATTICE, ODD, "a.1", 5, (4, 6), "z4")
    partition = dilution.partition(LATTICE, ODD)
    subsets = len(partition.subsets)
    columns = np.concatenate(
        [
            dilute(noise, partition, range(n, min(n + block, 2 * subsets)))
            for n in range(0, 2 * subsets, block)
        ],
        axis=2,
    )
    columns = columns.reshape(*noise.shape, subsets)
    assert np.array_equal(columns.sum(axis=3), noise)
    assert np.all(np.count_nonzero(columns, axis=3) == 1)
    assert np.array_equal(np.argmax(columns[:, :, 0] != 0, axis=2), partition.member)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"time": 5},
            r"dilution.time = 5 does not divide the time extent 16 of the lattice 4x8x12x16: take a divisor",
        ),
        (
            {"displacement": 3},
            r"dilution.displacement = 3 does not divide every extent of the lattice 4x8x12x16.* 4$",
        ),
        ({"colour": True}, r"unknown dilution option 'colour': did you mean 'color'\?"),
        ({"spin": True}, r"unknown dilution option 'spin'; known: color, time, displacement"),
        ({"color": 3}, r"dilution.color must be true or false, got 3"),
        ({"time": "all"}, r"dilution.time must be a number of slices, or 'full', at least 1, got 'all'"),
        ({"time": 0}, r"at least 1, got 0"),
        ({"displacement": 2.0}, r"dilution.displacement must be a number of sites, at least 1, got 2.0"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(InputError, match=message):
        Dilution.parse(options).subsets(LATTICE)
