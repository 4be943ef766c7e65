"""Deflation where D_oe has zero modes: even vectors without an odd partner."""

import numpy as np
import pytest

from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash, StaggeredDslash
from stages.lqcd.gauge.hisq import naive_links
from stages.lqcd.lattice.geometry import ODD, Lattice
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.space import Space

pytestmark = pytest.mark.usefixtures("reference_kernels")

TINY = Lattice((4, 4, 4, 4))
SITE = (TINY.half_volume, 3)
SIZE = 3 * TINY.half_volume


@pytest.mark.parametrize(("k", "partners"), [(10, 0), (24, 0), (60, 36)])
def test_zero_modes_have_no_odd_partner(random_block, k, partners):
    """Periodic free field: 24 of the even modes vanish under D_oe, the other ones deflate the odd sites."""
    unit = np.broadcast_to(np.eye(3, dtype=complex), (4, 2, *SITE, 3)).copy()
    dslash = StaggeredDslash(naive_links(unit, TINY, boundary="periodic"))
    B, identity = SquaredDslash(dslash), np.eye(SIZE, dtype=complex).reshape(*SITE, SIZE)
    lowest = np.linalg.eigh(B.apply(identity).reshape(SIZE, SIZE))[1][:, :k]
    vectors = np.ascontiguousarray(lowest).reshape(*SITE, k)
    space = StaggeredSpace(dslash, Space.measured(B, vectors)).on(ODD)
    W = np.linalg.svd(dslash.apply_to(ODD, vectors).reshape(SIZE, k))[0][:, :partners]
    assert abs(space.within(identity).reshape(SIZE, SIZE) - W @ W.conj().T).max() < 1e-12
    np.testing.assert_allclose(space.eigenvalues, np.full(partners, 4.0), rtol=1e-12)
    A, b = NormalOperator(dslash, 0.01, ODD), random_block(15, *SITE, 4)
    assert abs(space.within(b - A.apply(space.guess(A.shift, b)))).max() < 1e-12
