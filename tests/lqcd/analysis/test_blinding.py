"""Blinded numbers: linear steps keep the factor, ratios lose it, nothing open is added."""

import numpy as np
import pytest

from stages.lqcd.analysis.blinding import Blinded, Blinding
from support.refusals import refuses

KEY = "00112233445566778899aabbccddeeff"
OPEN = np.array([2.0, -3.0, 5.5])


def test_factors_are_uniform_in_their_range():
    factors = [Blinding().apply(1.0).values.item() for _ in range(400)]
    assert 0.9 <= min(factors) < 0.91 and 1.09 < max(factors) <= 1.1
    assert np.mean(factors) == pytest.approx(1, abs=5 * 0.2 / np.sqrt(12 * 400))
    assert len({Blinding().key for _ in range(100)}) == 100 and len(bytes.fromhex(Blinding().key)) == 16


def test_one_key_makes_one_factor():
    one, two = Blinding(KEY), Blinding(KEY, salt="77")
    assert np.array_equal(one.apply(OPEN).values, two.apply(OPEN).values)
    assert one.digest != two.digest and Blinding(KEY, salt="77").digest == two.digest
    assert KEY not in repr(one) and KEY not in one.digest
    wide = Blinding(KEY, spread=0.3).apply(1.0).values.item() - 1
    assert abs(wide) < 0.3  # and not of the same place in it, which the ratio of the two would tell
    assert abs(wide - 3 * (one.apply(1.0).values.item() - 1)) > 1e-3


def test_what_is_blinded_comes_back():
    blinding = Blinding(KEY)
    assert np.allclose(Blinding(KEY).remove(blinding.apply(OPEN)), OPEN, rtol=1e-15)
    refuses("the key is not the one of the blinding", Blinding().remove, blinding.apply(OPEN))


def test_arithmetic():
    blinding = Blinding(KEY)
    one, two = blinding.apply(OPEN), blinding.apply(2 * OPEN + 1)
    for found, expected in (
        (one + two, 3 * OPEN + 1),
        (two - one, OPEN + 1),
        (3 * one / 2.0, 1.5 * OPEN),
        (OPEN * one, OPEN**2),
    ):
        assert np.allclose(blinding.remove(found), expected, rtol=1e-14)
    ratio = one / two
    assert isinstance(ratio, np.ndarray) and np.allclose(ratio, OPEN / (2 * OPEN + 1), rtol=1e-15)


def test_what_is_refused():
    one, other = Blinding(KEY).apply(OPEN), Blinding().apply(OPEN)
    for call, words in (
        (lambda: one + 1.0, "open numbers cannot be added to blinded ones"),
        (lambda: 1.0 - one, "open numbers cannot be subtracted from blinded ones"),
        (lambda: OPEN + one, "open numbers cannot be added to"),
        (lambda: one + other, "values of another blinding cannot be added to"),
        (lambda: one / other, "values of another blinding cannot be divided by"),
        (lambda: one * one, "has the factor twice"),
        (lambda: np.asarray(one), "these values are blinded"),
        (lambda: Blinding("1234"), "32 hexadecimal digits or more"),
        (lambda: Blinding("x" * 32), "32 hexadecimal digits or more"),
        (lambda: Blinding(KEY, spread=1.0), "between 0 and 1 and a salt of letters and digits, got 1.0"),
        (lambda: Blinding(KEY, salt="a:b"), "a salt of letters and digits, got 0.1 and 'a:b'"),
        (lambda: Blinding(KEY).remove(Blinded(OPEN, "x")), "'x' is no digest of a blinding"),
    ):
        refuses(words, call)
