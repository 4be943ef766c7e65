"""The one-end trick on a dense inverse: a complete set of sources gives the difference of both flavours."""

import numpy as np
import pytest

from stages.lqcd.estimators.stochastic import one_end_difference
from stages.lqcd.kernels.gamma import GAMMA, GAMMA5
from stages.lqcd.lattice.geometry import Lattice
from support.dense_quarks import diagonal_links, wilson_matrix
from support.lexicographic import to_parity

LATTICE, MASS, MU, COLOUR = Lattice((4, 4, 4, 4)), -0.2, -0.3, 1
GAMMAS = [np.eye(4), GAMMA5, GAMMA[2], GAMMA[3] @ GAMMA5, GAMMA[0] @ GAMMA[1]]


@pytest.mark.usefixtures("reference_kernels")
def test_a_complete_set_of_sources_gives_the_difference_of_traces() -> None:
    D = wilson_matrix(diagonal_links(LATTICE, 2303), MASS, COLOUR).reshape(1024, 1024)
    twist = 1j * MU * np.kron(np.eye(LATTICE.volume), GAMMA5)
    up, down = np.linalg.inv(D - twist), np.linalg.inv(D + twist)
    difference = np.einsum("xaxb->xab", (up - down).reshape(2 * (256, 4))).reshape(4, -1, 4, 4)
    expected = np.einsum("gab,txba->gt", np.array(GAMMAS), difference)

    solutions = np.zeros((4, 4, 4, 4, 4, 3, 1024), complex)  # of all unit vectors of one colour
    solutions[..., COLOUR, :] = up.reshape(4, 4, 4, 4, 4, 1024)
    fields = to_parity(solutions, LATTICE).reshape(2, LATTICE.half_volume, 12, 1024)
    found = one_end_difference(fields, MU, GAMMAS, LATTICE)
    assert found.shape == (1024, len(GAMMAS), 4)
    np.testing.assert_allclose(found.sum(axis=0), expected, atol=1e-11 * np.abs(expected).max())
