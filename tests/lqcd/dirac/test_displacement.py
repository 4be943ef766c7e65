"""Displacements: words, their adjoints, gauge covariance."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.displacement import displaced, reversed_word, steps_of
from stages.lqcd.lattice.geometry import Lattice
from workflows.certification.fields import rotated

LATTICE = Lattice((4, 6, 2, 4))
TIMES, SITES = LATTICE.time_extent, LATTICE.sites_per_slice


def random_field(seed, columns):
    rng = np.random.default_rng(seed)
    shape = (TIMES, 2, SITES, 3, columns)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def special_unitary(seed, *shape):
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.normal(size=(*shape, 3, 3)) + 1j * rng.normal(size=(*shape, 3, 3)))
    q[..., 0] /= np.linalg.det(q)[..., None]
    return q


def moved(links, field, word):
    return displaced(links, LATTICE, field, word, (np.empty_like(field), np.empty_like(field)))


def test_words():
    assert steps_of("") == () and steps_of("+x-z+y") == ((0, 1), (2, -1), (1, 1))
    assert reversed_word("+x-z+y") == "-y+z-x" and reversed_word("") == ""
    for word in ("x", "+t", "+x+", "+x +y", "+x+x+x+x", "0", 0, None):
        with pytest.raises(InputError, match="a displacement is a word of up to 3 of"):
            steps_of(word)


def test_a_word_is_a_path_from_x():
    links, field = special_unitary(17, 4, 2, LATTICE.half_volume), random_field(18, 2)
    assert np.array_equal(moved(links, field, "+x-y"), moved(links, moved(links, field, "-y"), "+x"))
    assert np.array_equal(moved(links, field, ""), field)
    for word in ("+x-x", "-z+z", "+y-y"):
        assert np.abs(moved(links, field, word) - field).max() < 1e-13


@pytest.mark.parametrize("word", ["+x", "-y", "+z-x", "+x+y-z"])
def test_the_path_back_is_the_adjoint(word):
    links, f, g = special_unitary(19, 4, 2, LATTICE.half_volume), random_field(20, 1), random_field(21, 1)
    left, right = np.vdot(f, moved(links, g, word)), np.vdot(moved(links, f, reversed_word(word)), g)
    assert abs(left - right) < 1e-11 * abs(left)


def test_displacements_are_gauge_covariant():
    links, field = special_unitary(22, 4, 2, LATTICE.half_volume), random_field(23, 3)
    g = special_unitary(24, 2, LATTICE.half_volume)
    by_slice = g.reshape(2, TIMES, SITES, 3, 3).swapaxes(0, 1)
    expected = by_slice @ moved(links, field, "+x-z+y")
    assert np.abs(moved(rotated(links, g, LATTICE), by_slice @ field, "+x-z+y") - expected).max() < 1e-13
