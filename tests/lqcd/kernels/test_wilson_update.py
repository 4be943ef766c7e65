"""A product with the Wilson operator and what is added to it: the sum of its terms, in place too."""

import numpy as np
import pytest
from doubled_links import packed_links
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels.reference import clover as reference_clover
from stages.lqcd.kernels.reference import wilson_dslash as reference
from stages.lqcd.kernels.short_numbers import HalfField, from_half, to_half
from stages.lqcd.kernels.wilson_update import wilson_update
from stages.lqcd.lattice.geometry import ODD, Lattice
from support.matrices import error
from support.refusals import refuses

pytestmark = pytest.mark.parametrize("dtype", ["complex64"], indirect=True)

LATTICE = Lattice((4, 6, 2, 4))
SITES = LATTICE.half_volume
A, B = 0.4 - 0.7j, 1.1 + 0.2j


class Problem:
    """Links, fields and clover matrices, on the host and where a backend has them."""

    def __init__(self, backend, random, n, clover):
        self.backend = backend
        links, blocks = random(SITES, 8, 3, 3), random(SITES, 2, 6, 6)
        self.x, self.own, self.source = (random(SITES, 12, n) for _ in range(3))
        self.packed = packed_links(backend.kernels.wilson_dslash, backend.array(links), LATTICE, ODD)
        self.exactly = reference.pack(links.astype(complex), LATTICE, ODD)
        blocks = blocks + blocks.conj().swapaxes(-1, -2)
        self.clover = self.exact_clover = None
        if clover:
            self.clover = backend.kernels.clover.pack(backend.array(blocks))
            self.exact_clover = "hop", reference_clover.pack(blocks.astype(complex))

    def expected(self, x, own, source, c):
        hop = reference.wilson_dslash(
            self.exactly, x.astype(complex), np.empty(x.shape, complex), clover=self.exact_clover
        )
        return A * own + B * hop + (0 if source is None else c * source)


@pytest.mark.parametrize("n", widths((1, 3), (6, 8, 16, 33)))
@pytest.mark.parametrize("clover", [True, False], ids=["clover", "no clover"])
def test_sum_of_its_terms(backend, random, n, clover):
    problem, c = Problem(backend, random, n, clover), -0.3 + 1.2j
    x, own, source = (backend.array(f) for f in (problem.x, problem.own, problem.source))
    for added, factor in ((source, c), (None, 0)):
        expected = problem.expected(problem.x, problem.own, None if added is None else problem.source, c)
        out = backend.array(np.full_like(problem.x, np.nan))
        terms = {"source": added, "factors": (A, B, factor), "clover": problem.clover}
        wilson_update(problem.packed, x, out, own=own, **terms)
        assert error(backend.host(out), expected) < 1e-6
        inside = own.copy()
        wilson_update(problem.packed, x, inside, own=inside, **terms)
        assert np.array_equal(backend.host(inside), backend.host(out))


@pytest.mark.parametrize("n", widths((1, 3), (6, 16)))
def test_fields_in_16_bits(backend, random, n):
    """Into 16 bits, in place, and into single precision."""
    problem, c = Problem(backend, random, n, True), 0.9 - 0.1j
    x, own, source = (to_half(backend.array(f)) for f in (problem.x, problem.own, problem.source))
    held = [from_half(to_half(f)) for f in (problem.x, problem.own, problem.source)]
    expected = problem.expected(*held, c)
    terms = {"source": source, "factors": (A, B, c), "clover": problem.clover}
    out = wilson_update(problem.packed, x, HalfField.empty(SITES, n, backend.xp), own=own, **terms)
    assert error(backend.host(from_half(out)), expected) < 5e-5
    whole = wilson_update(problem.packed, x, backend.array(np.full_like(problem.x, np.nan)), own=own, **terms)
    assert error(backend.host(whole), expected) < 1e-6
    wilson_update(problem.packed, x, own, own=own, **terms)
    assert np.array_equal(backend.host(own.codes), backend.host(out.codes))
    assert np.array_equal(backend.host(own.scales), backend.host(out.scales))


def test_misuse(backend, random):
    problem = Problem(backend, random, 2, False)
    x, own = backend.array(problem.x), backend.array(problem.own)
    refuses("must not be its input", wilson_update, problem.packed, x, x, own=own)
    with pytest.raises(InputError, match="both be HalfFields, or neither"):
        wilson_update(problem.packed, x, own, own=own, source=to_half(x))
    refuses("own must be", wilson_update, problem.packed, x, x.copy(), own=own[..., :1])
    half = HalfField(to_half(x).codes[:-1], to_half(x).scales)
    refuses(r"x\.codes must be", wilson_update, problem.packed, half, x.copy(), own=own)
