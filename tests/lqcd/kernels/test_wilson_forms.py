"""Links of Wilson-type operators in 12 and 8 reals against the same operator from all 18, in double."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy

from stages.errors import InputError
from stages.lqcd.dirac.doubled_links import doubled_links
from stages.lqcd.gauge.wilson_links import Anisotropy, wilson_links
from stages.lqcd.kernels.cuda import projection, wilson_dslash
from stages.lqcd.kernels.reference import wilson_dslash as reference
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

pytestmark = pytest.mark.gpu

LATTICES = [(6, 4, 2, 4), (2, 2, 2, 2), (8, 8, 4, 6)]


def doubled(random, lattice, parity, boundary, anisotropy):
    """Links of an operator as `pack` takes them, complex128 on the host."""
    thin = cupy.asarray(random(4, 2, lattice.half_volume, 3, 3).astype(complex))
    projection.special_unitary(thin.reshape(-1, 3, 3), thin.reshape(-1, 3, 3))
    made = wilson_links(cupy.asnumpy(thin), lattice, boundary=boundary, anisotropy=anisotropy)
    weights = np.reshape(anisotropy.weights, (4, 1, 1, 1, 1))
    return doubled_links(made.links * weights, None, lattice, parity, complex)


def applied(packed, x, form, sign):
    """D x with links in a given form."""
    out = cupy.full_like(x, np.nan)
    kernel = wilson_dslash.wilson_dslash_launch(
        packed.lattice, packed.dtype, x.shape[2], sign, wilson_dslash.NO_CLOVER, form
    )
    wilson_dslash.start(kernel, packed, form, x, out)
    return cupy.asnumpy(out)


@pytest.mark.parametrize("form", [wilson_dslash.FULL, wilson_dslash.TWELVE, wilson_dslash.EIGHT], ids=str)
@pytest.mark.parametrize(
    "boundary", ["antiperiodic", ("antiperiodic", "periodic", "antiperiodic", "periodic")]
)
@pytest.mark.parametrize("extents", LATTICES, ids=str)
def test_short_links_are_the_links(random, dtype, tolerance, extents, boundary, form):
    """12 reals to rounding; 8 reals lose up to half the digits where an element is small."""
    lattice, parity, sign = Lattice(extents), ODD, -1
    links = doubled(random, lattice, parity, boundary, Anisotropy(2.4, 0.9))
    packed = wilson_dslash.pack(cupy.asarray(links.astype(dtype)), lattice, parity)
    for n in (1, 6):
        x = random(lattice.half_volume, 12, n)
        exact = reference.wilson_dslash(
            reference.pack(links, lattice, parity), x.astype(complex), np.empty(x.shape, complex), sign=sign
        )
        error = np.abs(applied(packed, cupy.asarray(x), form, sign) - exact).max() / np.abs(exact).max()
        assert error < (tolerance if form != wilson_dslash.EIGHT else 8 * np.finfo(dtype).eps ** 0.5)


@pytest.mark.parametrize("boundary", ["dirichlet", "antiperiodic"])
def test_links_that_are_not_su3_keep_18_reals(random, boundary):
    lattice = Lattice((4, 4, 4, 4))
    links = doubled(random, lattice, EVEN, boundary, Anisotropy())
    if boundary != "dirichlet":
        links[77, 5] *= 1.01
    packed = wilson_dslash.pack(cupy.asarray(links), lattice, EVEN)
    assert packed.with_12_reals is None and packed.with_8_reals is None
    assert {packed.best_form(n) for n in (1, 8, 16)} == {wilson_dslash.FULL}
    with pytest.raises(InputError, match="need 18 reals each"):
        packed.in_form(wilson_dslash.TWELVE)


def test_free_links_have_no_form_of_8_reals():
    """U_01 = U_02 = 0: what is left does not say what the second row is."""
    lattice = Lattice((4, 4, 4, 4))
    links = np.broadcast_to(np.eye(3), (lattice.half_volume, 8, 3, 3)) * np.array([1, -1] * 4)[:, None, None]
    packed = wilson_dslash.pack(cupy.asarray(links, complex), lattice, EVEN)
    assert packed.with_8_reals is None and packed.with_12_reals is not None
