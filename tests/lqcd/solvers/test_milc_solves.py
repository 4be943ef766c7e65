"""Solves that MILC wrote to files or printed."""

import numpy as np
import pytest

from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.gauge.hisq import asqtad_links, hisq_links
from stages.lqcd.lattice.formats import read_field, read_gauge
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.even_odd import EvenOdd


@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(BatchedCG(1e-10), id="cg"),
        pytest.param(BlockCGrQ(1e-10, precision="double-single"), id="block", marks=pytest.mark.slow),
    ],
)
def test_asqtad_solutions_are_milcs(reference_data, expected, solver):
    entry = expected["asqtad:Minv"]
    configuration, source, inverse, normal_inverse = entry["files"]
    u0, mass = entry["values"]["u0"], entry["values"]["mass"]
    field = read_gauge(reference_data / configuration)
    dslash = StaggeredDslash(asqtad_links(field.links, field.lattice, boundary="antiperiodic", u0=u0))
    b, x, y = (vector(reference_data / name) for name in (source, inverse, normal_inverse))
    solved = EvenOdd(solver, StaggeredSchur).solve(StaggeredOperator(dslash, mass), b).x
    assert np.linalg.norm(solved - x) <= entry["rtol"] * np.linalg.norm(x)
    for parity in (EVEN, ODD):
        solved = solver.solve(NormalOperator(dslash, mass, parity), b[parity]).x
        assert np.linalg.norm(solved - y[parity]) <= entry["rtol"] * np.linalg.norm(y)


def vector(path):
    """The colour vector of a file, ``[parity, site, 3, 1]``, in double precision."""
    return read_field(path).values.astype(complex)


def test_pion_is_milcs(reference_data, expected):
    """C(t) = sum_{x, a, b} |M^-1(x, t; 0)|^2 from a point source of each colour at the origin."""
    entry = expected["hisq:pion_l8888"]
    field = read_gauge(reference_data / entry["files"][0])
    links = hisq_links(field.links, field.lattice, boundary="antiperiodic", naik_epsilon=0.0)
    operator = StaggeredOperator(StaggeredDslash(links), entry["values"]["mass"])
    b = np.zeros((*operator.shape, 3), complex)
    b[EVEN, 0] = np.eye(3)
    x = EvenOdd(BatchedCG(1e-11), StaggeredSchur).solve(operator, b).x
    by_time = (abs(x) ** 2).reshape(2, field.lattice.time_extent, -1).sum(axis=(0, 2))
    np.testing.assert_allclose(by_time, entry["values"]["corr"], rtol=entry["rtol"])
