"""Site numbering, neighbours and the order of plain arrays, by their definitions."""

import itertools

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.lexicographic import gauge_to_lexicographic, gauge_to_parity, to_lexicographic, to_parity

LATTICE = Lattice((4, 6, 2, 8))


def sites_in_order() -> list[tuple[int, int, int, int]]:
    """All (x, y, z, t), t slowest and x fastest."""
    lx, ly, lz, lt = LATTICE.extents
    return [(x, y, z, t) for t, z, y, x in itertools.product(range(lt), range(lz), range(ly), range(lx))]


@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_sites_of_a_parity_keep_the_lexicographic_order(parity: int) -> None:
    of_parity = [(site, number) for number, site in enumerate(sites_in_order()) if sum(site) % 2 == parity]
    assert LATTICE.coordinates(parity).tolist() == [list(site) for site, _ in of_parity]
    assert LATTICE.lexicographic(parity).tolist() == [number for _, number in of_parity]
    assert LATTICE.site(LATTICE.coordinates(parity)).tolist() == list(range(LATTICE.half_volume))


@pytest.mark.parametrize("hops", [1, -1, 3, -3])
@pytest.mark.parametrize("mu", range(4))
def test_neighbours_wrap_around(mu: int, hops: int) -> None:
    ahead = LATTICE.coordinates(ODD)[LATTICE.neighbour(EVEN, mu, hops)]
    expected = LATTICE.coordinates(EVEN).copy()
    expected[:, mu] = (expected[:, mu] + hops) % LATTICE.extents[mu]
    assert (ahead == expected).all()


def test_time_slices_are_contiguous() -> None:
    slices = np.arange(LATTICE.half_volume) // LATTICE.sites_per_slice
    for parity in (EVEN, ODD):
        assert (LATTICE.coordinates(parity)[:, 3] == slices).all()


def test_plain_arrays_there_and_back() -> None:
    lx, ly, lz, lt = LATTICE.extents
    numbers = np.arange(LATTICE.volume * 2).reshape(lt, lz, ly, lx, 2)
    field = to_parity(numbers, LATTICE)
    x, y, z, t = LATTICE.coordinates(ODD)[37]
    assert (field[ODD, 37] == numbers[t, z, y, x]).all()
    assert (to_lexicographic(field, LATTICE) == numbers).all()


def test_plain_links_there_and_back() -> None:
    lx, ly, lz, lt = LATTICE.extents
    links = np.random.default_rng(64).normal(size=(lt, lz, ly, lx, 4, 3, 3))
    field = gauge_to_parity(links, LATTICE)
    x, y, z, t = LATTICE.coordinates(EVEN)[101]
    assert (field[2, EVEN, 101] == links[t, z, y, x, 2]).all()
    assert (gauge_to_lexicographic(field, LATTICE) == links).all()


@pytest.mark.parametrize("extents", [(4, 4, 4), (4, 4, 4, 3), (0, 4, 4, 4), (4, -2, 4, 4)])
def test_unusable_extents(extents: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="four even numbers of at least 2"):
        Lattice(extents)  # type: ignore[arg-type]


def test_arrays_of_another_lattice() -> None:
    with pytest.raises(InputError, match=r"shape \(t z y x ...\) = \(8, 2, 6, 4\), got \(4, 6, 2, 8\)"):
        to_parity(np.zeros((4, 6, 2, 8)), LATTICE)
    with pytest.raises(InputError, match=r"shape \(2, 192, ...\), got \(2, 128\)"):
        to_lexicographic(np.zeros((2, 128)), LATTICE)
