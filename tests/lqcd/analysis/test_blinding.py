"""Blindings: their factors, what names them, what is refused."""

import numpy as np
import pytest

from stages.lqcd.analysis.blinding import Blinding
from support.refusals import refuses

KEY = "00112233445566778899aabbccddeeff"


def test_factors_are_uniform_in_their_range():
    factors = [Blinding().factor for _ in range(400)]
    assert 0.9 <= min(factors) < 0.91 and 1.09 < max(factors) <= 1.1
    assert np.mean(factors) == pytest.approx(1, abs=5 * 0.2 / np.sqrt(12 * 400))
    assert len({Blinding().key for _ in range(100)}) == 100 and len(bytes.fromhex(Blinding().key)) == 16


def test_one_key_makes_one_factor():
    one, two = Blinding(KEY), Blinding(KEY, salt="77")
    assert one.factor == two.factor
    assert one.digest != two.digest and Blinding(KEY, salt="77").digest == two.digest
    assert KEY not in repr(one) and KEY not in one.digest
    wide = Blinding(KEY, spread=0.3).factor - 1
    assert abs(wide) < 0.3  # and not of the same place in it, which the ratio of the two would tell
    assert abs(wide - 3 * (one.factor - 1)) > 1e-3


def test_what_is_refused():
    blinding = Blinding(KEY, spread=0.2)
    assert Blinding.of_digest(KEY, blinding.digest).factor == blinding.factor
    for call, words in (
        (
            lambda: Blinding.of_digest(Blinding().key, blinding.digest),
            "the key is not the one of the blinding",
        ),
        (lambda: Blinding("1234"), "32 hexadecimal digits or more"),
        (lambda: Blinding("x" * 32), "32 hexadecimal digits or more"),
        (lambda: Blinding(KEY, spread=1.0), "between 0 and 1 and a salt of letters and digits, got 1.0"),
        (lambda: Blinding(KEY, salt="a:b"), "a salt of letters and digits, got 0.1 and 'a:b'"),
        (lambda: Blinding.of_digest(KEY, "x"), "'x' is no digest of a blinding"),
    ):
        refuses(words, call)
