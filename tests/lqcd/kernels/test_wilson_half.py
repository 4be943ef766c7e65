"""The Wilson dslash on fields of 16 bits, and its products with what is added to them."""

import numpy as np
import pytest
from doubled_links import clover_term, packed_links
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels import clover as kernels_contract
from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.kernels.reference import wilson_dslash as reference
from stages.lqcd.kernels.short_numbers import HalfField, from_half, to_half
from stages.lqcd.kernels.wilson_update import wilson_update
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.matrices import error
from support.refusals import refuses

pytestmark = pytest.mark.parametrize("dtype", ["complex64"], indirect=True)

LATTICE = Lattice((4, 6, 2, 4))
SITES = LATTICE.half_volume


def hermitian(random):
    blocks = random(SITES, 2, 6, 6)
    return blocks + blocks.conj().swapaxes(-1, -2)


@pytest.mark.parametrize("n", [1, 6, 8])
def test_conversion_and_back(backend, random, n):
    """Error at most half a scale of the site and right-hand side; all packages have the same codes."""
    field = (
        random(SITES, 12, n)
        * np.float32(10.0) ** np.linspace(-30, 30, SITES, dtype=np.float32)[:, None, None]
    )
    field[5] = 0
    half = to_half(backend.array(field))
    back = backend.host(from_half(half))
    scales, expected = backend.host(half.scales), to_half(field)
    parts = np.abs((back - field).view(np.float32)).reshape(SITES, 12, n, 2).max(axis=(1, 3))
    assert (parts <= 0.51 * scales).all() and (back[5] == 0).all()
    assert np.array_equal(scales, expected.scales)
    assert np.array_equal(backend.host(half.codes), expected.codes)


@pytest.mark.parametrize("n", widths((1, 3), (8,)))
@pytest.mark.parametrize("matrices", ["none", "hop", "diagonal", "hop twisted"])
@pytest.mark.parametrize("into", ["16 bits", "16 bits without a diagonal", "single"])
def test_products(backend, random, n, matrices, into):
    """Into single precision the arithmetic on what 16 bits hold is that of single precision."""
    added, single = "without" not in into, into == "single"
    if matrices == "diagonal" and not added:
        pytest.skip("these matrices multiply a diagonal")
    links, x, y = random(SITES, 8, 3, 3), random(SITES, 12, n), random(SITES, 12, n)
    blocks, kernels, parity = hermitian(random), backend.kernels.wilson_dslash, EVEN if single else ODD
    packed, half = packed_links(kernels, backend.array(links), LATTICE, parity), to_half(backend.array(x))
    terms, exact_terms = {"b": -0.5, "sign": -1}, {"b": -0.5, "sign": -1}
    if added:
        diagonal = backend.array(y)
        terms |= {"a": 0.7, "diagonal": diagonal if single else to_half(diagonal)}
        exact_terms |= {"a": 0.7, "diagonal": y.astype(complex)}
    if matrices != "none":
        terms["clover"] = clover_term(backend.kernels.clover, backend.array(blocks), matrices)
        with kernels_of("reference"):
            exact_terms["clover"] = clover_term(kernels_contract, blocks.astype(complex), matrices)
    empty = backend.array(np.full_like(y, np.nan)) if single else HalfField.empty(SITES, n, backend.xp)
    out = kernels.wilson_dslash(packed, half, empty, **terms)
    exactly = reference.pack(links.astype(complex), LATTICE, parity)
    held = from_half(to_half(x)) if single else x
    exact = reference.wilson_dslash(exactly, held.astype(complex), np.empty(x.shape, complex), **exact_terms)
    found = backend.host(out if single else from_half(out))
    assert error(found, exact) < (1e-6 if single else 1e-4)


def test_misuse(backend, random):
    kernels = backend.kernels.wilson_dslash
    links, x = backend.array(random(SITES, 8, 3, 3)), backend.array(random(SITES, 12, 2))
    half, packed = to_half(x), packed_links(kernels, links, LATTICE, EVEN)
    double = packed_links(kernels, links.astype(complex), LATTICE, EVEN)
    refuses("needs complex64 links, got complex128", kernels.wilson_dslash, double, half, x.copy())
    refuses("diagonal must be a HalfField, got", kernels.wilson_dslash, packed, half, to_half(x), diagonal=x)
    refuses("must not be its input", kernels.wilson_dslash, packed, half, half)
    refuses("sign must be 1, or -1", kernels.wilson_dslash, packed, half, x.copy(), sign=0)
    with pytest.raises(InputError, match=r"out.codes must be .* \(96, 12, 2, 2\)"):
        kernels.wilson_dslash(packed, half, HalfField.empty(SITES, 3, backend.xp))
    refuses(r"shape \(sites, 12, right-hand sides\), got \(96, 3, 2\)", to_half, x[:, :3])


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
            _, self.clover = clover_term(backend.kernels.clover, backend.array(blocks), clover)
            with kernels_of("reference"):
                self.exact_clover = clover_term(kernels_contract, blocks.astype(complex), clover)

    def expected(self, x, own, source, c):
        hop = reference.wilson_dslash(
            self.exactly, x.astype(complex), np.empty(x.shape, complex), clover=self.exact_clover
        )
        return A * own + B * hop + (0 if source is None else c * source)


@pytest.mark.parametrize("n", widths((1, 3), (6, 8, 16, 33)))
@pytest.mark.parametrize("clover", ["hop", "hop adjoint", ""])
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
    problem, c = Problem(backend, random, n, "hop twisted"), 0.9 - 0.1j
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


def test_misuse_of_updates(backend, random):
    problem = Problem(backend, random, 2, "")
    x, own = backend.array(problem.x), backend.array(problem.own)
    refuses("must not be its input", wilson_update, problem.packed, x, x, own=own)
    with pytest.raises(InputError, match="both be HalfFields, or neither"):
        wilson_update(problem.packed, x, own, own=own, source=to_half(x))
    refuses("own must be", wilson_update, problem.packed, x, x.copy(), own=own[..., :1])
    half = HalfField(to_half(x).codes[:-1], to_half(x).scales)
    refuses(r"x\.codes must be", wilson_update, problem.packed, half, x.copy(), own=own)
