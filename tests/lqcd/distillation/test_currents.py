"""Current insertions against their definition, for all sixteen Dirac matrices."""

import tracemalloc

import numpy as np
import pytest
from slice_fields import Elsewhere, moved, solutions, special_unitary, waves

from stages.base.errors import InputError
from stages.lqcd.distillation.currents import current_insertions, planned_bytes
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.gammas import DIRAC
from support.lexicographic import to_lexicographic

LATTICE = Lattice((4, 2, 6, 4))
MOMENTA = ((0, 0, 0), (1, 0, -2))
WORDS = ("", "+x", "+y-x")
GAMMAS = np.array(list(DIRAC.values()))
AMPLE = 1 << 40


def links_of(lattice):
    return special_unitary(41, 4, 2, lattice.half_volume)


def explicit(left, right, links, insertions):
    lattice, (ni, nj) = insertions.lattice, (left.shape[-1], right.shape[-1])
    spinors = [to_lexicographic(field.astype(complex), lattice) for field in (left, right)]
    bra = spinors[0].reshape(*spinors[0].shape[:4], 4, 3, ni).conj()
    ket = spinors[1].reshape(*spinors[1].shape[:4], 4, 3, nj)
    result = []
    for momentum in insertions.momenta:
        phased = bra * waves(lattice, momentum)[..., None, None, None]
        result.append([])
        for word in insertions.displacements:
            shifted = np.stack([moved(ket[..., s, :, :], links, word, lattice) for s in range(4)], axis=-3)
            turned = np.einsum("grs,tzyxscj->gtzyxrcj", GAMMAS, shifted)
            result[-1].append(np.einsum("tzyxrci,gtzyxrcj->tgij", phased, turned, optimize=True))
    return np.array(result).transpose(2, 3, 0, 1, 4, 5)


@pytest.mark.parametrize("columns", [(1, 1), (3, 5), (4, 2)], ids=str)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_insertions_are_what_they_are_defined_as(dtype, columns):
    insertions, links = Insertions(LATTICE, MOMENTA, WORDS), links_of(LATTICE)
    left, right = (solutions(LATTICE, n, 42 + n, dtype) for n in columns)
    expected = explicit(left, right, links, insertions)
    found = current_insertions(left, right, links, insertions, GAMMAS, np, AMPLE)
    assert found.shape == (4, 16, 2, 3, *columns) and found.dtype == np.complex128
    tolerance = 1e-6 if dtype == "complex64" else 1e-14
    assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()


def test_left_in_single_beside_right_in_double():
    insertions, links = Insertions(LATTICE, MOMENTA, WORDS), links_of(LATTICE)
    left, right = solutions(LATTICE, 2, 51, np.complex64), solutions(LATTICE, 3, 52)
    found = current_insertions(left, right, links, insertions, GAMMAS, np, AMPLE)
    expected = explicit(left, right, links, insertions)
    assert np.abs(found - expected).max() < 1e-14 * np.abs(expected).max()


def test_every_bound_on_memory_gives_the_same_and_is_kept():
    lattice = Lattice((8, 8, 8, 8))
    insertions, links = Insertions(lattice, MOMENTA, WORDS), links_of(lattice)
    left, right = solutions(lattice, 3, 55), solutions(lattice, 5, 56)
    whole = current_insertions(left, right, links, insertions, GAMMAS, np, AMPLE)
    for given in ((Elsewhere(left), Elsewhere(right)), (left, Elsewhere(right)), (left, right)):
        for tile in (1, 3):
            planned = planned_bytes(*given, links, insertions, GAMMAS, np, tile)
            tracemalloc.start()
            result = current_insertions(*given, links, insertions, GAMMAS, np, planned)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert np.array_equal(result, whole)
            assert 0.8 * planned < peak - result.nbytes < 1.2 * planned


def test_bad_input_is_refused():
    insertions, left = Insertions(LATTICE, MOMENTA, ("",)), solutions(LATTICE, 2, 57)
    with pytest.raises(InputError, match=r"Dirac matrices have shape \(number, 4, 4\)"):
        current_insertions(left, left, None, insertions, GAMMAS[0], np, AMPLE)
    with pytest.raises(InputError, match="right solutions on 4x2x6x4 have shape"):
        current_insertions(left, left[:, 1:], None, insertions, GAMMAS, np, AMPLE)
    with pytest.raises(InputError, match=r"left solutions .* their number, at least 1, got"):
        current_insertions(left[..., :0], left, None, insertions, GAMMAS, np, AMPLE)
    needed = planned_bytes(left, left, None, insertions, GAMMAS, np, 1)
    with pytest.raises(InputError, match=f"allow at least {needed}"):
        current_insertions(left, left, None, insertions, GAMMAS, np, needed - 1)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_on_the_device(dtype):
    import cupy

    insertions, links = Insertions(LATTICE, MOMENTA, WORDS), links_of(LATTICE)
    left, right = solutions(LATTICE, 3, 58, dtype), solutions(LATTICE, 5, 59, dtype)
    expected = current_insertions(left, right, links, insertions, GAMMAS, np, AMPLE)
    for given in ((left, right), (cupy.array(left), right), (cupy.array(left), cupy.array(right))):
        for tile in (1, 4):
            there = cupy.array(links)
            planned = planned_bytes(*given, there, insertions, GAMMAS, cupy, tile)
            found = current_insertions(*given, there, insertions, GAMMAS, cupy, planned)
            tolerance = 2e-6 if dtype == "complex64" else 1e-13
            assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()
