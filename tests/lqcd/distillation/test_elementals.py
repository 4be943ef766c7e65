"""Elementals against their definition, their symmetries, and within any bound on memory."""

import tracemalloc

import numpy as np
import pytest
from slice_fields import Elsewhere, by_coordinates, eigenvectors, moved, special_unitary, waves

from stages.base.errors import InputError
from stages.lqcd.dirac.displacement import reversed_word, steps_of
from stages.lqcd.distillation.elementals import elementals, planned_bytes
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.lattice.geometry import Lattice
from support.refusals import refuses
from workflows.certification.fields import rotated

LATTICE = Lattice((4, 2, 6, 4))
MOMENTA = ((0, 0, 0), (1, 0, -2), (-3, 1, 1))
WORDS = ("", "+x", "-z", "+y-x", "-z+x+x")
AMPLE = 1 << 40


def links_of(lattice, seed=31):
    return special_unitary(seed, 4, 2, lattice.half_volume)


def explicit(vectors, links, insertions):
    lattice = insertions.lattice
    field = by_coordinates(vectors.astype(complex), lattice)
    result = []
    for momentum in insertions.momenta:
        phased = field.conj() * waves(lattice, momentum)[..., None, None]
        shifted = (moved(field, links, word, lattice) for word in insertions.displacements)
        result.append([np.einsum("tzyxci,tzyxcj->tij", phased, f, optimize=True) for f in shifted])
    return np.array(result).transpose(2, 0, 1, 3, 4)


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_elementals_are_what_they_are_defined_as(dtype, k):
    insertions, links = Insertions(LATTICE, MOMENTA, WORDS), links_of(LATTICE)
    vectors = eigenvectors(LATTICE, k, 32, dtype)
    expected = explicit(vectors, links, insertions)
    found = elementals(vectors, links, insertions, np, AMPLE)
    assert found.shape == (4, 3, 5, k, k) and found.dtype == np.complex128
    tolerance = 1e-6 if dtype == "complex64" else 1e-14
    assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()
    part = elementals(vectors[1:3], links, insertions, np, AMPLE, first=1)
    assert np.array_equal(part, found[1:3])


def test_the_adjoint_is_the_path_back_at_the_opposite_momentum():
    """E(-p, path back) = e^{-ipd} E(p, path)^dag, d the end of the path."""
    links, vectors = links_of(LATTICE), eigenvectors(LATTICE, 4, 33)
    there = elementals(vectors, links, Insertions(LATTICE, MOMENTA, WORDS), np, AMPLE)
    opposite = tuple((-x, -y, -z) for x, y, z in MOMENTA)
    paths = tuple(map(reversed_word, WORDS))
    back = elementals(vectors, links, Insertions(LATTICE, opposite, paths), np, AMPLE)
    for m, momentum in enumerate(MOMENTA):
        for d, word in enumerate(WORDS):
            turns = sum(step * momentum[mu] / LATTICE.extents[mu] for mu, step in steps_of(word))
            expected = np.exp(-2j * np.pi * turns) * there[:, m, d].conj().swapaxes(-1, -2)
            assert np.abs(back[:, m, d] - expected).max() < 1e-12 * np.abs(expected).max()


def test_elementals_are_gauge_invariant():
    insertions, links = Insertions(LATTICE, MOMENTA, WORDS), links_of(LATTICE)
    vectors, g = eigenvectors(LATTICE, 3, 34), special_unitary(35, 2, LATTICE.half_volume)
    turned = g.reshape(2, LATTICE.time_extent, -1, 3, 3).swapaxes(0, 1) @ vectors
    before = elementals(vectors, links, insertions, np, AMPLE)
    after = elementals(turned, rotated(links, g, LATTICE), insertions, np, AMPLE)
    assert np.abs(after - before).max() < 1e-13 * np.abs(before).max()
    assert np.abs(elementals(turned, links, insertions, np, AMPLE) - before).max() > 0.1


def test_every_bound_on_memory_gives_the_same_and_is_kept():
    lattice = Lattice((8, 8, 8, 8))
    insertions, links = Insertions(lattice, MOMENTA, WORDS), links_of(lattice)
    for dtype in ("complex64", "complex128"):
        vectors = Elsewhere(eigenvectors(lattice, 7, 37, dtype))
        whole = elementals(vectors.array, links, insertions, np, AMPLE)
        for tile in (1, 3, 8):
            planned = planned_bytes(vectors, links, insertions, np, tile)
            tracemalloc.start()
            result = elementals(vectors, links, insertions, np, planned)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert np.array_equal(result, whole)
            assert 0.8 * planned < peak - result.nbytes < 1.2 * planned
        needed = planned_bytes(vectors, links, insertions, np, 1)
        with pytest.raises(InputError, match=f"elementals of 7 eigenvectors .* takes? {needed} bytes"):
            elementals(vectors, links, insertions, np, needed - 1)


def test_bad_input_is_refused():
    vectors = eigenvectors(LATTICE, 2, 38)
    for momentum in ((0.5, 0, 0), (1, 2), (1.0, 0, 0), 1, None):
        refuses("a momentum is three integers", Insertions, LATTICE, (momentum,), ("",))
    refuses(r"a displacement is a word of .* got '\+t'", Insertions, LATTICE, MOMENTA, ("", "+t"))
    for momenta, words in (((), ("",)), (MOMENTA, ())):
        refuses(r"there are no .*: give at least one", Insertions, LATTICE, momenta, words)
    refuses("need the links", elementals, vectors, None, Insertions(LATTICE, MOMENTA, ("+x",)), np, AMPLE)
    insertions = Insertions(LATTICE, MOMENTA, ("",))
    assert elementals(vectors, None, insertions, np, AMPLE).shape == (4, 3, 1, 2, 2)
    with pytest.raises(InputError, match="4 slices of eigenvectors from slice 1 on are not among the 4"):
        elementals(vectors, None, insertions, np, AMPLE, first=1)
    refuses(r"eigenvectors on 4x2x6x4 have shape", elementals, vectors[:, :, 1:], None, insertions, np, AMPLE)
    with pytest.raises(InputError, match=r"eigenvector\), got \(4, 2, 24, 3, 0\)"):
        elementals(vectors[..., :0], None, insertions, np, AMPLE)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_on_the_device(dtype):
    import cupy

    lattice = Lattice((8, 8, 8, 8))
    insertions, links = Insertions(lattice, MOMENTA, WORDS), links_of(lattice)
    vectors = eigenvectors(lattice, 9, 39, dtype)
    expected = elementals(vectors, links, insertions, np, AMPLE)
    for given in (vectors, cupy.array(vectors)):
        for tile in (2, 8):
            planned = planned_bytes(given, cupy.array(links), insertions, cupy, tile)
            found = elementals(given, cupy.array(links), insertions, cupy, planned)
            tolerance = 2e-6 if dtype == "complex64" else 1e-13
            assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()
