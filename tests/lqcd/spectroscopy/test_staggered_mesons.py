"""Staggered mesons against MILC's recipe of operators, dense matrices, reference numbers, identities."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline import At
from stages.base.errors import InputError
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.smeared_links import SmearedLinks
from stages.ensemble.staggered_operator import naive_operator
from stages.lqcd.analysis.effective_mass import effective_mass, without_oscillation
from stages.lqcd.dirac.full_lattice import StaggeredOperator
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.gauge.hisq import StaggeredLinks, hisq_links, naive_links
from stages.lqcd.gauge.reunitarise import polar_su3
from stages.lqcd.lattice.formats import read_gauge
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, slice_sites
from stages.lqcd.spectroscopy.staggered_mesons import (
    at_source,
    displaced,
    source_sign,
    staggered_correlator,
    staggered_source,
)
from stages.lqcd.spectroscopy.staggered_operators import GAMMAS, MULTIPLETS, SpinTaste, operators_of
from stages.mesons.propagator import staggered_propagator
from stages.mesons.sources import staggered_sources
from stages.mesons.two_point import staggered_two_point
from support.lexicographic import to_lexicographic
from support.matrices import matrix_of
from workflows.certification.fields import rotated, unit_links

pytestmark = pytest.mark.usefixtures("reference_kernels")

LATTICE = Lattice((4, 2, 2, 4))
ALL = operators_of(tuple(MULTIPLETS))
POINT, CORNER, NOISE = SourcePlace(1, (3, 1, 0)), SourcePlace(3), SourcePlace(2, None, 5)
SLOW = pytest.mark.slow
AXES = {0: 3, 1: 2, 2: 1, 3: 0}
"""Axis of x, y, z, t in ``[t, z, y, x, ...]``."""


@pytest.fixture(scope="module")
def thin() -> NDArray:
    rng, shape = np.random.default_rng(807), (4, 2, LATTICE.half_volume, 3, 3)
    return polar_su3(rng.normal(size=shape) + 1j * rng.normal(size=shape) + 2 * np.eye(3))


def inverse_of(links: StaggeredLinks, mass: float) -> NDArray:
    """G = (2 m + D)^-1 as a matrix on ``[parity, site, colour]``."""
    M = StaggeredOperator(StaggeredDslash(links), mass)
    return np.linalg.inv(matrix_of(M.apply, M.shape))


@pytest.fixture(scope="module")
def inverse(thin: NDArray, reference_kernels: None) -> NDArray:
    return inverse_of(naive_links(thin, LATTICE, boundary="antiperiodic"), 0.2)


def by_slice(field: NDArray, lattice: Lattice = LATTICE) -> NDArray:
    shape = (2, lattice.time_extent, lattice.sites_per_slice, *field.shape[2:])
    return np.ascontiguousarray(field.reshape(shape).swapaxes(0, 1))


def primed(operator: SpinTaste, field: NDArray, links: NDArray) -> NDArray:
    """O' = epsilon O of a field ``[parity, site, 3, column]``."""
    phases = np.stack([operator.phases(LATTICE.coordinates(parity)) for parity in (EVEN, ODD)])
    shifted = displaced(operator, by_slice(field), links, LATTICE).swapaxes(0, 1).reshape(field.shape)
    return phases[..., None, None] * shifted


def milc(operator: SpinTaste, field: NDArray, links: NDArray) -> NDArray:
    """O' by the recipe of MILC's general_spin_taste_op on ``[t, z, y, x, 3, column]``.

    Signs of spin, then shifts with zeta eta, antisymmetric in their order, then the antiquark's epsilon.
    """
    t, z, y, x = np.indices(field.shape[:4])
    n, epsilon = (x, y, z, t), (-1.0) ** (x + y + z + t)
    eta = ((-1.0) ** t, (-1.0) ** (t + x), (-1.0) ** (t + x + y))

    def along(mu: int, f: NDArray) -> NDArray:
        axis = AXES[mu]
        behind = np.roll(links[mu].conj().swapaxes(-1, -2) @ f, 1, axis)
        shifted = 0.5 * (links[mu] @ np.roll(f, -1, axis) + behind)
        return (epsilon * (-1.0) ** n[mu] * eta[mu])[..., None, None] * shifted

    for mu in GAMMAS[operator.spin]:
        field = (epsilon * (-1.0) ** n[mu])[..., None, None] * field
    one, two, three = (*operator.shifts, None, None, None)[:3]
    if three is not None:
        cyclic = [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
        orders = [(order, 1) for order in cyclic] + [(order[::-1], -1) for order in cyclic]
    elif two is not None:
        orders = [((one, two), 1), ((two, one), -1)]
    else:
        orders = [((one,) if one is not None else (), 1)]
    total = np.zeros_like(field)
    for order, sign in orders:
        shifted = field
        for mu in order:
            shifted = along(mu, shifted)
        total += sign * shifted / len(orders)
    return epsilon[..., None, None] * total


@pytest.mark.parametrize("label", ALL)
def test_operators_are_those_of_milc(label: str, thin: NDArray) -> None:
    """Up to a sign of the whole operator."""
    rng = np.random.default_rng(55)
    field = rng.normal(size=(2, LATTICE.half_volume, 3, 2)) + 0j
    operator = SpinTaste.parse(label)
    expected = milc(operator, to_lexicographic(field, LATTICE), [to_lexicographic(u, LATTICE) for u in thin])
    made = to_lexicographic(primed(operator, field, thin), LATTICE)
    sign = np.sign(np.vdot(made, expected).real)
    np.testing.assert_allclose(made, sign * expected, atol=1e-14)


def test_tastes_of_a_multiplet() -> None:
    """Links, spins and the number of tastes: sixteen for the pion, all different."""
    links = {
        name: {len(SpinTaste.parse(each).shifts) for each in labels} for name, labels in MULTIPLETS.items()
    }
    assert {name for name, count in links.items() if count == {0}} == {"pion5", "pion05", "rhoi", "rhoi0"}
    assert {name for name, count in links.items() if count == {1}} == {"pioni5", "pionij", "rhois", "rho0"}
    assert {name for name, count in links.items() if count == {2}} == {"pioni", "pioni0"}
    pions = [label for label in ALL if label.startswith("G5")]
    assert {label.split("-")[1] for label in pions} == GAMMAS.keys() and len(pions) == 16


@pytest.mark.parametrize(
    ("label", "said"),
    [("GX", "SPIN-TASTE, such as GX-G1"), ("GX-GW", "got 'GX-GW'"), ("GT-G1", "displaced in time")],
)
def test_operators_that_there_are_not(label: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        SpinTaste.parse(label)


def correlator(
    inverse: NDArray,
    links: NDArray,
    operator: SpinTaste,
    place: SourcePlace,
    source: NDArray,
    lattice: Lattice,
) -> NDArray:
    """C(t) of a source on a slice, by two solves."""

    def solve(slice_: NDArray) -> NDArray:
        field = np.zeros((2, lattice.half_volume, *slice_.shape[3:]), complex)
        field[:, slice_sites(lattice, place.time)] = slice_[0]
        return (inverse @ field.reshape(len(inverse), -1)).reshape(field.shape)

    other = at_source(operator, source, links, lattice, place.time)
    return staggered_correlator(solve(source), solve(other), operator, links, lattice, place)[0]


@pytest.mark.parametrize("place", [POINT, CORNER, NOISE], ids=["point", "corner", "noise"])
@pytest.mark.parametrize(
    "label", ["G5-G5", "G5T-G5T", "GYT-GYT", "G5-G5X", "GZ-G1", "GXT-GT", "G5T-GX", "G5-GT"]
)
def test_two_solves_are_the_trace(label: str, place: SourcePlace, thin: NDArray, inverse: NDArray) -> None:
    """Tr [P_t O G O^dag b b^dag G] of dense matrices."""
    operator, size = SpinTaste.parse(label), len(inverse)
    unit = np.eye(size, dtype=complex).reshape(2, LATTICE.half_volume, 3, size)
    epsilon = np.repeat([1.0, -1.0], size // 2)
    matrix = epsilon[:, None] * primed(operator, unit, thin).reshape(size, size)
    source = staggered_source(LATTICE, place, "a", 31)
    b = np.zeros((2, LATTICE.half_volume, *source.shape[3:]), complex)
    b[:, slice_sites(LATTICE, place.time)] = source[0]
    flat = epsilon[:, None] * b.reshape(size, -1)
    slices = np.stack([LATTICE.coordinates(parity)[:, 3] for parity in (EVEN, ODD)]).repeat(3)
    diagonal = np.einsum("ij,ji->i", matrix @ inverse @ matrix.conj().T @ flat, flat.conj().T @ inverse)
    trace = [diagonal[slices == (place.time + t) % 4].sum() for t in range(4)]
    made = correlator(inverse, thin, operator, place, source, LATTICE)
    np.testing.assert_allclose(made, trace, atol=1e-13)


@pytest.mark.parametrize("label", ["G5-G5", "G5T-G5T", "GX-GX", "GXT-GXT"])
def test_local_operators_share_a_solve(label: str) -> None:
    operator = SpinTaste.parse(label)
    for place in (POINT, CORNER, NOISE):
        source, sign = staggered_source(LATTICE, place, "a", 31), source_sign(operator, place)
        other = at_source(operator, source, None, LATTICE, place.time)
        if sign is None:
            assert place is NOISE and label != "G5-G5"
        else:
            np.testing.assert_array_equal(other, sign * source)
    assert source_sign(SpinTaste.parse("GX-G1"), POINT) is None


def test_goldstone_pion_and_its_identity(thin: NDArray, inverse: NDArray) -> None:
    """C(t) = sum |G|^2, and sum_t C(t) = Re tr G(x0, x0) / (2 m), the sum over the pion's Ward identity."""
    source = staggered_source(LATTICE, POINT, "a", None)
    made = correlator(inverse, thin, SpinTaste.parse("G5-G5"), POINT, source, LATTICE)
    here = np.zeros((2, LATTICE.half_volume, 3, 3), complex)
    here[:, slice_sites(LATTICE, POINT.time)] = source[0]
    b = here.reshape(len(inverse), 3)
    G = (inverse @ b).reshape(2, LATTICE.time_extent, -1)
    np.testing.assert_allclose(made, np.roll((np.abs(G) ** 2).sum(axis=(0, 2)), -POINT.time), rtol=1e-12)
    np.testing.assert_allclose(made.sum(), np.trace(b.conj().T @ inverse @ b).real / (2 * 0.2), rtol=1e-12)


@pytest.mark.parametrize("label", ["G5-G5", *(pytest.param(each, marks=SLOW) for each in ("GY-GY", "GX-G1"))])
def test_random_walls_estimate_the_mean_over_points(label: str, thin: NDArray, inverse: NDArray) -> None:
    operator, sites = SpinTaste.parse(label), 2 * LATTICE.sites_per_slice
    every = np.eye(3 * sites, dtype=complex).reshape(1, 2, LATTICE.sites_per_slice, 3, 3 * sites)
    exact = correlator(inverse, thin, operator, SourcePlace(2), every, LATTICE) / sites
    walls = np.array(
        [
            correlator(inverse, thin, operator, SourcePlace(2, None, n), wall, LATTICE).real
            for n in range(150)
            for wall in [staggered_source(LATTICE, SourcePlace(2, None, n), "a", 31)]
        ]
    )
    error = walls.std(axis=0, ddof=1) / np.sqrt(len(walls))
    assert np.all(np.abs(walls.mean(axis=0) - exact) < 4 * error) and np.all(
        error < 0.25 * np.abs(exact).max()
    )


@pytest.mark.parametrize("label", ["GZ-GZ", "G5-G5Y", "G5T-G1"])
def test_momentum_and_gauge_transformations(label: str, thin: NDArray) -> None:
    """A point's correlator is gauge invariant, and momenta are those of sum_x exp(-ip(x - x0))."""
    rng, operator = np.random.default_rng(99), SpinTaste.parse(label)
    g = polar_su3(
        rng.normal(size=(2, LATTICE.half_volume, 3, 3)) + 1j * rng.normal(size=(2, LATTICE.half_volume, 3, 3))
    )
    moved = rotated(thin, g, LATTICE)
    source, made = staggered_source(LATTICE, POINT, "a", None), []
    for links in (thin, moved):
        inverse = inverse_of(naive_links(links, LATTICE, boundary="periodic"), 0.2)
        made.append(correlator(inverse, links, operator, POINT, source, LATTICE))
    np.testing.assert_allclose(made[0], made[1], atol=1e-13)
    solved = np.zeros((2, LATTICE.half_volume, 3, 3), complex)
    solved[:, slice_sites(LATTICE, POINT.time)] = source[0]
    solved = (inverse @ solved.reshape(len(inverse), 3)).reshape(solved.shape)
    pion = SpinTaste.parse("G5-G5")
    found = staggered_correlator(solved, solved, pion, None, LATTICE, POINT, [(1, 0, 0)])[0]
    density = to_lexicographic((np.abs(solved) ** 2).sum(axis=(2, 3)), LATTICE)
    wave = np.exp(-2j * np.pi * (np.arange(4) - 3) / 4)
    np.testing.assert_allclose(found, np.roll(density.sum(axis=(1, 2)) @ wave, -1), atol=1e-13)


def test_free_quarks() -> None:
    """Of every meson C(t) > 0 without the oscillating partner, with the energy of two quarks, sinh E = m."""
    lattice, mass = Lattice((2, 2, 2, 16)), 0.4
    free = unit_links(lattice, np)
    at, labels = At(config="a", source="x1y0z1t5"), [each[0] for each in MULTIPLETS.values()]
    gauge, links = GaugeLinks(free, np.array(lattice.extents)), SmearedLinks(free, lattice)
    sources = staggered_sources(gauge, links, at=at, operators=labels)
    dslash, solve = (
        naive_operator(gauge, at=at, boundary="antiperiodic"),
        Solve("block_cgrq", 1e-10, block=27),
    )
    solved = staggered_propagator(dslash, sources, at=at, mass=mass, solve=solve)
    made = staggered_two_point(solved, links, at=at, extents=lattice.extents, operators=labels)
    assert solved.propagator.shape[-1] == 27  # 8 of 12 have links
    smooth = without_oscillation(made.correlator[0, :, 0].real)
    assert (smooth[:, 2:15] > 0).all()
    np.testing.assert_allclose(effective_mass(smooth)[:, 7], 2 * np.arcsinh(mass), rtol=0.01)


def test_reference_numbers(reference_data: Path) -> None:
    """Of a public 4^4 configuration: traces over all points of the slices, and point sources."""
    numbers = Path(__file__).parents[2] / "reference" / "hvp" / "connected.json"
    connected = json.loads(numbers.read_text())
    with warnings.catch_warnings(action="ignore"):
        gauge = read_gauge(reference_data / "hvp" / "l4444a.ildg.20")
    lattice, links = gauge.lattice, gauge.links.astype(complex)  # as stored, as in the reference
    mass = connected["full/l/G5_G5#product"]["mass"]
    inverse = inverse_of(hisq_links(gauge.links, lattice, boundary="antiperiodic", naik_epsilon=0.0), mass)
    every = np.eye(192, dtype=complex).reshape(1, 2, 32, 3, 192)
    for name in ("G5_G5", "GX_GX", "GX_G1"):
        operator = SpinTaste.parse(name.replace("_", "-"))
        made = [correlator(inverse, links, operator, SourcePlace(t), every, lattice) for t in range(4)]
        np.testing.assert_allclose(
            np.mean(made, axis=0), connected[f"full/l/{name}#product"]["value"], rtol=1e-10
        )
    origin = SourcePlace(0, (0, 0, 0))
    for name in ("G5_G5", "GX_GX"):
        operator, source = (
            SpinTaste.parse(name.replace("_", "-")),
            staggered_source(lattice, origin, "", None),
        )
        made = correlator(inverse, links, operator, origin, source, lattice)
        np.testing.assert_allclose(made, connected[f"point/l/{name}"]["value"], rtol=1e-6)
