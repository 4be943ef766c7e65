"""The Wilson dslash against its definition, element by element; its misuse."""

import numpy as np
import pytest
from doubled_links import clover_term, packed_links
from widths import widths

from stages.base.errors import InputError
from stages.lqcd.kernels import clover, wilson_dslash
from stages.lqcd.kernels.directions import displacements
from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.kernels.reference import wilson_dslash as reference
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.matrices import close

GAMMAS = np.array(
    [
        [[0, 0, 0, 1j], [0, 0, 1j, 0], [0, -1j, 0, 0], [-1j, 0, 0, 0]],
        [[0, 0, 0, -1], [0, 0, 1, 0], [0, 1, 0, 0], [-1, 0, 0, 0]],
        [[0, 0, 1j, 0], [0, 0, 0, -1j], [-1j, 0, 0, 0], [0, 1j, 0, 0]],
        [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]],
    ]
)
LATTICES = [(6, 4, 2, 4), (2, 2, 2, 2), (4, 4, 6, 2)]
MATRICES = ("none", "hop", "diagonal")
TWISTED = ("hop twisted", "hop adjoint", "diagonal twisted", "diagonal adjoint")
BITS = widths(
    [(sign, place, (0, 5)) for sign in (1, -1) for place in MATRICES]
    + [(1, "hop twisted", ()), (-1, "diagonal adjoint", ())],
    [(1, "none", range(8))],
)
"""A sign, what clover matrices multiply, and single hops, each of which has a kernel."""


def by_definition(links, x, lattice, parity, sign, directions=range(8)):
    """sum_d (projector x link) neighbour, one site, direction and spin at a time, in double."""
    spinors = x.astype(complex).reshape(lattice.half_volume, 4, 3, -1)
    total = np.zeros_like(spinors)
    for d in directions:
        mu, hops = displacements(8)[d]
        for site, coordinates in enumerate(lattice.coordinates(parity)):
            there = coordinates.copy()
            there[mu] += hops
            carried = np.einsum("ab,sbn->san", links[site, d], spinors[lattice.site(there)])
            for r in range(4):
                for s in range(4):
                    # the backward links hold -U^dag
                    total[site, r] += hops * ((r == s) - hops * sign * GAMMAS[mu, r, s]) * carried[s]
    return total.reshape(x.shape)


def hermitian(random, sites):
    blocks = random(sites, 2, 6, 6)
    return blocks + blocks.conj().swapaxes(-1, -2)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("parity", [EVEN, ODD])
@pytest.mark.parametrize("extents", LATTICES, ids=str)
def test_is_its_definition(backend, random, tolerance, extents, parity, sign):
    lattice = Lattice(extents)
    links, x = random(lattice.half_volume, 8, 3, 3), random(lattice.half_volume, 12, 3)
    packed = packed_links(backend.kernels.wilson_dslash, backend.array(links), lattice, parity)
    out = backend.array(np.full_like(x, np.nan))
    assert backend.kernels.wilson_dslash.wilson_dslash(packed, backend.array(x), out, sign=sign) is out
    assert close(backend.host(out), by_definition(links, x, lattice, parity, sign), tolerance)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("direction", widths((0, 5), (1, 2, 3, 4, 6, 7)))
def test_single_hops(backend, random, tolerance, direction, sign):
    lattice = Lattice((4, 2, 4, 2))
    links, x = random(lattice.half_volume, 8, 3, 3), random(lattice.half_volume, 12, 3)
    packed = packed_links(backend.kernels.wilson_dslash, backend.array(links), lattice, ODD)
    out = backend.array(np.full_like(x, np.nan))
    backend.kernels.wilson_dslash.wilson_hop(packed, direction, backend.array(x), out, sign=sign)
    assert close(backend.host(out), by_definition(links, x, lattice, ODD, sign, [direction]), tolerance)


@pytest.mark.parametrize(
    ("n", "matrices"),
    widths(
        [*((3, place) for place in (*MATRICES, "hop alone", *TWISTED[1:3])), (17, "diagonal")],
        [
            *((17, place) for place in MATRICES[:2]),
            *((n, place) for n in (1, 2, 8, 16, 32) for place in (*MATRICES, *TWISTED)),
        ],
    ),
)
def test_adds_the_diagonal_and_multiplies_by_clover_matrices(backend, random, tolerance, n, matrices):
    lattice = Lattice((4, 6, 2, 4))
    sites = lattice.half_volume
    links, x, y, blocks = (
        random(sites, 8, 3, 3),
        random(sites, 12, n),
        random(sites, 12, n),
        hermitian(random, sites),
    )
    packed = packed_links(backend.kernels.wilson_dslash, backend.array(links), lattice, ODD)
    names = {"diagonal": backend.array(y), "a": 0.37, "b": -1.9, "sign": -1}
    expected_names = {"diagonal": y.astype(complex), "a": 0.37, "b": -1.9, "sign": -1}
    if matrices == "hop alone":
        del names["diagonal"], expected_names["diagonal"]
    if matrices != "none":
        name = matrices.removesuffix(" alone")
        names["clover"] = clover_term(backend.kernels.clover, backend.array(blocks), name)
        with kernels_of("reference"):
            expected_names["clover"] = clover_term(clover, blocks.astype(complex), name)
    double = reference.pack(links.astype(complex), lattice, ODD)
    expected = reference.wilson_dslash(
        double, x.astype(complex), np.empty(y.shape, complex), **expected_names
    )
    out = backend.array(np.full_like(y, np.nan))
    apply = backend.kernels.wilson_dslash.wilson_dslash
    apply(packed, backend.array(x), out, **names)
    assert close(backend.host(out), expected, tolerance)
    if "diagonal" in names:
        apply(packed, backend.array(x), names["diagonal"], **names)
        assert np.array_equal(backend.host(names["diagonal"]), backend.host(out))


@pytest.mark.parametrize(("sign", "matrices", "hops_alone"), BITS)
def test_one_right_hand_side_has_the_bits_that_it_has_among_others(sign, matrices, hops_alone):
    """The processor has a kernel for one alone in single precision, with other vectors and the same sums."""
    lattice, rng = Lattice((4, 6, 2, 2)), np.random.default_rng(1793)
    sites = lattice.half_volume

    def normal(*shape):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)

    packed = packed_links(wilson_dslash, normal(sites, 8, 3, 3), lattice, ODD)
    x, y, names = normal(sites, 12, 3), normal(sites, 12, 3), {"a": 0.37, "b": -1.9, "sign": sign}
    if matrices != "none":
        names["clover"] = clover_term(clover, hermitian(normal, sites), matrices)
    together = wilson_dslash.wilson_dslash(packed, x, np.empty_like(x), diagonal=y, **names)
    hops = {d: wilson_dslash.wilson_hop(packed, d, x, np.empty_like(x), sign=sign) for d in hops_alone}
    for n in range(3):
        column, out = (np.ascontiguousarray(field[..., n : n + 1]) for field in (x, y))
        wilson_dslash.wilson_dslash(packed, column, out, diagonal=out, **names)
        assert out.tobytes() == np.ascontiguousarray(together[..., n : n + 1]).tobytes()
        for d, hop in hops.items():
            wilson_dslash.wilson_hop(packed, d, column, out, sign=sign)
            assert out.tobytes() == np.ascontiguousarray(hop[..., n : n + 1]).tobytes()


@pytest.mark.parametrize("dtype", ["complex128"], indirect=True)
def test_a_field_larger_than_the_caches(backend, random, tolerance):
    lattice = Lattice((8, 8, 8, 16))
    links, x = random(lattice.half_volume, 8, 3, 3), random(lattice.half_volume, 12, 3)
    packed = packed_links(backend.kernels.wilson_dslash, backend.array(links), lattice, ODD)
    out = backend.array(np.full_like(x, np.nan))
    backend.kernels.wilson_dslash.wilson_dslash(packed, backend.array(x), out)
    expected = reference.wilson_dslash(reference.pack(links, lattice, ODD), x, np.empty_like(x))
    assert close(backend.host(out), expected, tolerance)


@pytest.fixture
def operands(backend, random):
    """Packed links, x, out, clover matrices on 4^4 that fit together."""
    lattice = Lattice((4, 4, 4, 4))
    packed = packed_links(backend.kernels.wilson_dslash, backend.array(random(128, 8, 3, 3)), lattice, EVEN)
    clover = backend.kernels.clover.pack(backend.array(hermitian(random, 128)))
    return packed, backend.array(random(128, 12, 2)), backend.array(random(128, 12, 2)), clover


MISUSE = {
    "dtype": (lambda x, c: {"x": x.astype("complex128")}, "x must be a C-contiguous complex64 array"),
    "sites": (lambda x, c: {"x": x[:-1].copy()}, r"shape \(128, 12, 2\), got complex64 \(127, 12, 2\)"),
    "staggered": (lambda x, c: {"x": x[:, :3].copy()}, r"shape \(128, 12, 2\)"),
    "dimensions": (lambda x, c: {"x": x[:, :, 0].copy()}, "x must have shape"),
    "order": (lambda x, c: {"diagonal": x[:, ::-1]}, "diagonal must be a C-contiguous"),
    "out": (lambda x, c: {"out": x[:]}, "must not be its input"),
    "sign": (lambda x, c: {"sign": 2}, "sign must be 1, or -1"),
    "nothing to multiply": (lambda x, c: {"clover": ("diagonal", c)}, "of the diagonal multiply it"),
}


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
@pytest.mark.parametrize("case", MISUSE)
def test_refuses_wrong_operands(backend, operands, case):
    packed, x, out, clover = operands
    change, message = MISUSE[case]
    with pytest.raises(InputError, match=message):
        backend.kernels.wilson_dslash.wilson_dslash(packed, **{"x": x, "out": out, **change(x, clover)})


@pytest.mark.parametrize("dtype", ["complex64"], indirect=True)
def test_refuses_clover_matrices_of_other_sites_or_precision(backend, operands, random):
    packed, x, out, _ = operands
    blocks = hermitian(random, 64)
    for other in (blocks, np.concatenate([blocks, blocks]).astype(complex)):
        clover = backend.kernels.clover.pack(backend.array(other))
        with pytest.raises(InputError, match="clover matrices must be complex64 on 128 sites"):
            backend.kernels.wilson_dslash.wilson_dslash(packed, x, out, clover=("hop", clover))


def test_refuses_wrong_links(backend):
    links = backend.array(np.zeros((4, 2, 64, 3, 3), complex))
    with pytest.raises(InputError, match=r"links must be .* shape \(4, 2, 128, 3, 3\)"):
        backend.kernels.wilson_dslash.pack_fields(links, (1.0,) * 4, Lattice((4, 4, 4, 4)), 0, complex)
