"""Matrices that are not finite: refused at once, or at the end of a block where the host would wait."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.kernels import coarse_dslash
from stages.lqcd.multigrid.aggregates import Aggregates, Grid, answered_at_end, prolongation, require_finite

FINE, DAMAGED = np.ones((2, 3, 3), complex), np.full((2, 3, 3), np.nan * 1j)


def test_the_host_says_so_at_once():
    require_finite(FINE, "no")
    with pytest.raises(InputError, match="vectors"):
        require_finite(DAMAGED, "vectors")
    with answered_at_end(), pytest.raises(InputError, match="vectors"):
        require_finite(DAMAGED, "vectors")


class Answer:
    """What a device will have found."""

    def __init__(self, matrices):
        self.matrices = matrices
        self.read = False

    def __bool__(self):
        self.read = True
        return bool(np.isfinite(self.matrices).all())


@pytest.fixture
def answers(monkeypatch):
    given = []

    def is_finite(matrices):
        given.append(Answer(matrices))
        return given[-1]

    monkeypatch.setattr(coarse_dslash, "is_finite", is_finite)
    return given


def test_a_device_is_asked_at_the_end(answers):
    """Once more outside of a block: at once."""
    with pytest.raises(InputError, match="first"), answered_at_end():
        for matrices, message in ((FINE, "none"), (DAMAGED, "first"), (DAMAGED, "second")):
            require_finite(matrices, message)
        assert not any(answer.read for answer in answers)
    assert [answer.read for answer in answers] == [True, True, False]
    with pytest.raises(InputError, match="later"):
        require_finite(DAMAGED, "later")


def test_another_error_goes_first(answers):
    with pytest.raises(ZeroDivisionError), answered_at_end():
        require_finite(DAMAGED, "vectors")
        raise ZeroDivisionError
    require_finite(FINE, "no")


@pytest.mark.gpu
def test_dependent_vectors_on_a_gpu():
    """Of zeros: a transfer of NaN is made, and refused at the end."""
    cupy = pytest.importorskip("cupy")
    blocks = Aggregates(Grid((4, 4, 4, 4)), (2, 2, 2, 2))
    nothing, made = cupy.zeros((256, 12, 4), np.complex64), []
    with pytest.raises(InputError, match="linearly dependent"):
        prolongation(blocks, nothing)
    with pytest.raises(InputError, match="linearly dependent"), answered_at_end():
        made.append(prolongation(blocks, nothing)[0])
    assert not cupy.isfinite(made[0].vectors).any()
