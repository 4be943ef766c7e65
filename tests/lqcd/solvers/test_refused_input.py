"""Operators and vectors that no solver can take are refused by cause."""

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.hisq import naive_links
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.solvers.space import ritz_pairs

RNG = np.random.default_rng(5150)


@pytest.mark.parametrize("difference", [1e-9, 3e-9, 1e-8, 1.3e-8, 2e-8])
def test_nearly_dependent_vectors_are_named_as_such(difference: float) -> None:
    vectors = RNG.normal(size=(60, 3)) + 1j * RNG.normal(size=(60, 3))
    vectors[:, 2] = vectors[:, 1] + difference * vectors[:, 0]
    operator = np.diag(np.linspace(0.1, 2, 60))
    with pytest.raises(InputError, match=r"3 vectors of the deflation space are linearly dependent"):
        ritz_pairs(vectors.conj().T @ operator @ vectors, vectors.conj().T @ vectors)


def test_wilson_mass_whose_diagonal_vanishes_is_named() -> None:
    lattice = Lattice((4, 2, 2, 4))
    unit = np.broadcast_to(np.eye(3, dtype=complex), (4, 2, lattice.half_volume, 3, 3)).copy()
    M = WilsonOperator(WilsonDslash(wilson_links(unit, lattice, boundary="antiperiodic", csw=0.0)), -4.0)
    b = np.ones((2, lattice.half_volume, 12, 1), complex)
    with pytest.raises(InputError, match=r"diagonal m \+ 4 vanishes, at mass -4.0: change the mass"):
        WilsonSchur(M).prepare(b)


def test_normal_equations_of_an_operator_without_adjoint_are_refused() -> None:
    lattice = Lattice((4, 2, 2, 4))
    unit = np.broadcast_to(np.eye(3, dtype=complex), (4, 2, lattice.half_volume, 3, 3)).copy()
    A = NormalOperator(StaggeredDslash(naive_links(unit, lattice, boundary="antiperiodic")), 0.1)
    b = np.ones((lattice.half_volume, 3, 1), complex)
    with pytest.raises(InputError, match=r"NormalOperator has not: .*WilsonSchur.* operator to BatchedCG"):
        NormalEquations(BatchedCG()).solve(A, b)
