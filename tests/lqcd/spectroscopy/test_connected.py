"""Connected correlators of staggered quarks against dense traces, identities and another code's numbers."""

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline import At
from stages.base.errors import InputError
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.staggered_operator import given_operator
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.gauge.given_links import given_links
from stages.lqcd.gauge.hisq import StaggeredLinks, hisq_links
from stages.lqcd.gauge.phases import with_phases
from stages.lqcd.kernels.transfer import to_device
from stages.lqcd.lattice.formats import read_field, read_gauge
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.even_odd import EvenOdd
from stages.lqcd.solvers.space import Space
from stages.lqcd.spectroscopy.connected import (
    normalised,
    random_wall,
    rest_correlator,
    source_correlator,
)
from stages.lqcd.spectroscopy.low_propagator import LowPropagator, mode_weights
from stages.lqcd.spectroscopy.meson_fields import MesonFields, meson_field_rows, meson_fields
from stages.lqcd.spectroscopy.quark_sources import slice_sites
from stages.lqcd.spectroscopy.vector_currents import (
    LABELS,
    conserved_vector,
    contact_term,
    hops_of,
    local_current,
    one_link_vector,
    vector_current,
)
from support.dense_staggered import DenseStaggered
from support.lexicographic import to_lexicographic, to_parity
from support.matrices import matrix_of, random_su3
from support.refusals import refuses

pytestmark = pytest.mark.usefixtures("reference_kernels")

REFERENCE = Path(__file__).parents[2] / "reference"
SLOW = pytest.mark.slow
LATTICE = Lattice((4, 4, 4, 4))
SIZE = 3 * LATTICE.volume
MASSES = (0.05, 0.4)
ONE_OF_EACH = ("G5-G5", "GX-GX", "GY-G1", "CZ")
MODES, SEED, ERROR = 24, 4127, 1e-3


@pytest.fixture(scope="module")
def links(reference_kernels: None) -> StaggeredLinks:
    """Of a charm-like epsilon, antiperiodic in t."""
    thin = random_su3(np.random.default_rng(5511), 4, 2, LATTICE.half_volume, size=0.5)
    return hisq_links(thin, LATTICE, boundary="antiperiodic", naik_epsilon=-0.1)


@pytest.fixture(scope="module")
def dense(links: StaggeredLinks) -> DenseStaggered:
    return DenseStaggered.of(links)


@pytest.fixture(scope="module")
def inverses(dense: DenseStaggered) -> dict[float, NDArray]:
    return {mass: np.linalg.inv(dense.operator(mass)) for mass in MASSES}


@pytest.fixture(scope="module")
def spectrum(dense: DenseStaggered) -> tuple[NDArray, NDArray]:
    """Of -D_eo D_oe."""
    hops = dense.operator(0.0)[: SIZE // 2, SIZE // 2 :]
    return np.linalg.eigh(hops @ hops.conj().T)


@pytest.fixture(scope="module")
def low(links: StaggeredLinks, spectrum: tuple[NDArray, NDArray]) -> LowPropagator:
    """The lowest modes, each with an error of 1e-3 that knows all others."""
    rng, vectors = np.random.default_rng(98), spectrum[1][:, :MODES]
    noise = rng.normal(size=(*vectors.shape, 2)) @ [1, 1j]
    wrong = vectors + ERROR * noise / np.linalg.norm(noise, axis=0)
    dslash = StaggeredDslash(links)
    return LowPropagator.of(dslash, Space.measured(SquaredDslash(dslash, EVEN), wrong.reshape(-1, 3, MODES)))


@pytest.fixture(scope="module")
def fields(low: LowPropagator, links: StaggeredLinks) -> MesonFields:
    return meson_fields(low, [vector_current(links, label) for label in LABELS])


def by_field(inverse: NDArray, b: NDArray) -> NDArray:
    return (inverse @ b.reshape(SIZE, -1)).reshape(b.shape)


def points(time: int) -> NDArray:
    """Sources on every site and colour of a slice: the sum of b b^dag is P_t."""
    source = np.zeros((2, LATTICE.half_volume, 3, 6 * LATTICE.sites_per_slice), complex)
    unit = np.eye(source.shape[-1]).reshape(2, LATTICE.sites_per_slice, 3, -1)
    source[:, slice_sites(LATTICE, time)] = unit
    return source


@pytest.mark.parametrize("label", LABELS)
def test_operators_by_formula(label: str, links: StaggeredLinks, dense: DenseStaggered) -> None:
    current = vector_current(links, label)
    field = np.random.default_rng(7).normal(size=(2, LATTICE.half_volume, 3, 2)) + 0j
    expected = dense.current(label)
    assert (current.label, current.hops) == (label, hops_of(label))
    assert np.array_equal(expected, expected.conj().T)
    np.testing.assert_allclose(current.apply(field), by_field(expected, field), atol=1e-13)
    epsilon = dense.current("G5-G5").diagonal()[:, None]
    source = by_field((epsilon * expected).conj().T, field)
    np.testing.assert_allclose(current.at_source(field), source, atol=1e-13)


@pytest.mark.parametrize(
    ("sink", "source"),
    [
        *(pytest.param(each, each, marks=() if each in ONE_OF_EACH else SLOW) for each in LABELS),
        ("CY", "GY-G1"),
        ("GX-G1", "GX-GX"),
    ],
)
def test_low_modes_of_error_and_their_rest_are_the_trace(sink, source, links, dense, inverses, low, fields):
    """Exactly, for any modes: sources on every point of a slice have no noise."""
    time, currents = LABELS.index(sink) % 4, [vector_current(links, each) for each in (sink, source)]
    b, matrices = points(time), [dense.current(each) for each in (sink, source)]
    for mass, inverse in inverses.items():
        solved = (by_field(inverse, each) for each in (b, currents[1].at_source(b)))
        parts = rest_correlator(low, mass, b, *solved, *currents, time)
        exact = dense.trace(*matrices, inverse)[time]
        exactly_low = fields.low_low(sink, source, mass)[time]
        scale = np.abs(exact).max()
        assert np.abs(parts.low.sum(axis=0) - exactly_low).max() < 1e-11 * scale
        assert np.abs(exactly_low + parts.rest.sum(axis=0) - exact).max() < 1e-10 * scale
        assert np.abs(parts.rest.sum(axis=0)).max() > 1e-3 * scale


def test_all_modes_are_the_trace() -> None:
    """Of all operators and masses, and of two different operators."""
    lattice = Lattice((4, 2, 2, 4))
    thin = random_su3(np.random.default_rng(31), 4, 2, lattice.half_volume, size=0.7)
    links = hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    small, dslash = DenseStaggered.of(links), StaggeredDslash(links)
    B = SquaredDslash(dslash, EVEN)
    _, vectors = np.linalg.eigh(matrix_of(B.apply, B.shape))
    mixing = np.eye(96) + 0.05 * np.random.default_rng(2).normal(size=(96, 96))
    for each in (vectors, vectors @ mixing):  # the second spans all modes, too
        modes = LowPropagator.of(dslash, Space.measured(B, each.reshape(-1, 3, 96)))
        fields = meson_fields(modes, [vector_current(links, label) for label in LABELS])
        for mass in MASSES:
            inverse = np.linalg.inv(small.operator(mass))
            for sink, source in [*((each, each) for each in LABELS), ("CY", "GY-G1"), ("GX-GX", "GX-G1")]:
                exact = small.trace(small.current(sink), small.current(source), inverse)
                found = fields.low_low(sink, source, mass)
                np.testing.assert_allclose(found, exact, atol=1e-10 * np.abs(exact).max() + 1e-12)


def test_meson_fields_of_momenta_blocks_and_ranks(links, dense, low):
    momenta, labels = [(0, 0, 0), (1, 0, -1)], ("GY-GY", "CX")
    currents = [vector_current(links, label) for label in labels]
    fields = meson_fields(low, currents, momenta)
    for number, rows, held in product((1, 2), (None, range(5, 20)), (None, 10)):  # at rest by X^dag
        seen: list[int] = []
        given = low, currents, momenta[:number], 4, rows, held
        found = meson_field_rows(*given, lambda done, _, seen=seen: seen.append(done))
        expected = fields.values[:, :number, ..., slice(None) if rows is None else slice(5, 20), :]
        np.testing.assert_allclose(found, expected, atol=1e-14)
        assert seen == sorted(seen) and seen[-1] == len(rows or range(MODES))
    ranks = [3, 20, 7]
    part = low.chosen(ranks)
    _, (v, w) = next(part.blocks())
    phase = np.exp(-2j * np.pi * dense.coordinates[:, :3] @ (np.array(momenta[1]) / 4))
    modes = np.zeros((2, SIZE, 3), complex)
    modes[EVEN, : SIZE // 2], modes[ODD, SIZE // 2 :] = v.reshape(-1, 3), w.reshape(-1, 3)
    inverse = by_field_matrix(lambda b: part.apply(0.1, b))
    for number, label in enumerate(labels):
        matrix = dense.diagonal(phase).diagonal()[:, None] * dense.current(label)
        for t, parity in product(range(4), (EVEN, ODD)):
            left = dense.on_slices()[t, :, None] * modes[parity]
            right = modes[parity ^ currents[number].hops]
            expected = fields.values[number, 1, parity, t][np.ix_(ranks, ranks)]
            np.testing.assert_allclose(left.conj().T @ matrix @ right, expected, atol=1e-13)
        exact = dense.trace(matrix, matrix, inverse)
        found = fields.low_low(label, label, 0.1, momenta[1], ranks)
        np.testing.assert_allclose(found, exact, atol=1e-12 * np.abs(exact).max())


def by_field_matrix(apply: Callable[[NDArray], NDArray]) -> NDArray:
    unit = np.eye(SIZE, dtype=complex).reshape(2, LATTICE.half_volume, 3, SIZE)
    return apply(unit).reshape(SIZE, SIZE)


@pytest.fixture(scope="module")
def published(reference_data: Path) -> Any:
    """Numbers of another code; its gauge field, fat and long links."""
    numbers = json.loads((REFERENCE / "hvp/connected.json").read_text())
    with warnings.catch_warnings(action="ignore"):
        gauge = read_gauge(reference_data / "hvp/l4444a.ildg.20")
        fat, long = (
            read_field(reference_data / f"hvp/{name}4444a.ildg.20").values for name in ("fat", "lng")
        )
    return numbers, gauge, fat, long


@pytest.mark.parametrize(
    "given", [True, pytest.param(False, marks=SLOW)], ids=["files' links", "product's links"]
)
def test_reference_numbers(given: bool, published: Any, reference_data: Path) -> None:
    """Low-mode correlators of another code, of 100 modes whose ranks it lists, and dense traces."""
    numbers, gauge, _, _ = published
    lattice = gauge.lattice
    if given:
        names = {"fat": "fat4444a.ildg.20", "long": "lng4444a.ildg.20"}
        files = {key: reference_data / "hvp" / name for key, name in names.items()}
        thin, at = GaugeLinks(gauge.links, np.array(lattice.extents)), At(config="a")
        with warnings.catch_warnings(action="ignore"):
            dslash = given_operator(thin, at=at, boundary="antiperiodic", **files)
    else:
        made = hisq_links(gauge.links, lattice, boundary="antiperiodic", naik_epsilon=0.0)
        dslash = StaggeredDslash(made)
    assert dslash.links.boundary == ("periodic", "periodic", "periodic", "antiperiodic")
    B = SquaredDslash(dslash, EVEN)
    values, vectors = np.linalg.eigh(by_half(B))
    modes = LowPropagator.of(
        dslash, Space.of_eigenpairs(values, vectors.reshape(-1, 3, len(values)), np.zeros(len(values)))
    )
    labels, ranks = ("G5-G5", "GX-GX", "GX-G1"), np.array(numbers["lambda_ranks"]["value"], int)
    currents = [vector_current(dslash.links, each) for each in labels]
    fields = meson_fields(modes.chosen(ranks), currents)
    for label in labels:
        expected = numbers[f"LL/l/{label.replace('-', '_')}"]
        found = fields.low_low(label, label, expected["mass"])
        np.testing.assert_allclose(
            found.mean(axis=0), expected["value"], rtol=0, atol=2e-9 if given else 1e-7
        )


@pytest.mark.slow
def test_dense_traces_are_those_of_the_reference(published: Any) -> None:
    """Of the conserved current, of two operators, and the loop: Tr P_t O G = i J(t) of the one-link one."""
    numbers, gauge, fat, long = published
    dense = DenseStaggered.of(given_links(fat, long, gauge.links, gauge.lattice))
    inverse = np.linalg.inv(dense.operator(numbers["full/l/CX-CX"]["mass"]))
    fat_link = replace(dense, thin=dense.fat).current("GX-G1")
    conserved, thin_link = dense.current("CX"), dense.current("GX-G1")
    for name, sink, source in (
        ("CX-CX", conserved, conserved),
        ("CX-GX_G1", thin_link, conserved),
        ("FX_G1-FX_G1", fat_link, fat_link),
    ):
        found = dense.trace(sink, source, inverse).mean(axis=0)
        np.testing.assert_allclose(found, numbers[f"full/l/{name}"]["value"], rtol=0, atol=1e-7)
    loop = dense.on_slices() @ np.einsum("ij,ji->i", thin_link, inverse)
    np.testing.assert_allclose(loop, 1j * np.array(numbers["loop/l/GX_G1"]["value"]), atol=1e-7)


def by_half(B: SquaredDslash) -> NDArray:
    size = int(np.prod(B.shape))
    return B.apply(np.eye(size, dtype=complex).reshape(*B.shape, size)).reshape(size, size)


@pytest.mark.parametrize("mass", [0.1, 0.4])
def test_free_quarks(mass: float) -> None:
    """6^3 x 12: all points are alike, so that L^3 times the correlator of one is the slice trace."""
    numbers = json.loads((REFERENCE / "amu.json").read_text())["F free staggered correlators"]["data"]
    expected = numbers[f"hisq m={mass} (M = 2m + D), 6^3 x 12, antiperiodic t"]
    lattice = Lattice((6, 6, 6, 12))
    unit = np.tile(np.eye(3, dtype=complex), (4, 2, lattice.half_volume, 1, 1))
    links = hisq_links(unit, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    M = StaggeredOperator(StaggeredDslash(links), mass)
    b = np.zeros((2, lattice.half_volume, 3, 1), complex)
    b[0, 0, 0] = 1
    names = {"G5-G5": "G5_G5", "GX-GX": "GX_GX", "GY-G1": "GX_G1", "CX": "CX", "CZ": "CX"}
    for label, name in names.items():
        current = vector_current(links, label)
        quark, antiquark = (free_solution(M, each) for each in (b, current.at_source(b)))
        one = 3 * source_correlator(quark, antiquark, current, 0)[0]  # colours are alike, too
        found = normalised(one, lattice, "site", "slice")
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-10)


def free_solution(M: StaggeredOperator, b: NDArray) -> NDArray:
    """(2 m - D) (4 m^2 - D^2)^-1 b: D^2 is a number for each momentum, antiperiodic in t."""
    lattice = M.dslash.lattice
    half = np.pi / lattice.time_extent
    t = np.exp(-1j * half * np.arange(lattice.time_extent)).reshape(-1, 1, 1, 1, 1, 1)
    momenta = [2 * np.pi * np.fft.fftfreq(n) for n in lattice.extents[::-1]]
    momenta[0] = momenta[0] + half
    squares = [4 * (9 / 8 * np.sin(p) - np.sin(3 * p) / 24) ** 2 for p in momenta]
    denominator = 4 * M.mass**2 + sum(np.meshgrid(*squares, indexing="ij"))
    waves = np.fft.fftn(t * to_lexicographic(b, lattice), axes=range(4)) / denominator[..., None, None]
    y = np.ascontiguousarray(to_parity(np.fft.ifftn(waves, axes=range(4)) / t, lattice))
    return 4 * M.mass * y - M.apply(y)


def test_charge_commutes_like_a_number(links, dense, inverses):
    """G (Q(t) - Q(t - 1)) G = G P_t - P_t G on every slice, Q(t) = 2 O of the bonds that leave it."""
    inverse, slices = inverses[MASSES[0]], dense.on_slices()[..., None]
    b = np.random.default_rng(12).normal(size=(SIZE, 2)) + 0j
    times = np.stack([LATTICE.coordinates(parity)[:, 3] for parity in (EVEN, ODD)])
    charges = [conserved_vector(links, 3, (times == t).astype(float)) for t in range(4)]
    solved = (inverse @ b).reshape(2, -1, 3, 2)
    for t in range(4):
        change = charges[t].apply(solved) - charges[t - 1].apply(solved)
        found = 2 * by_field(inverse, change).reshape(SIZE, 2)
        expected = inverse @ (slices[t] * b) - slices[t] * (inverse @ b)
        assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()


SOURCE = (EVEN, 45)
"""Parity and number of the site z of the divergence."""


def divergence(
    links: StaggeredLinks, nu: int, chosen: list[tuple[int, int]], inverse: NDArray
) -> tuple[NDArray, float]:
    """sum_mu Pi(x) - Pi(x - mu) at chosen x with J_nu(z), and the largest |Pi| there."""
    at_z = np.zeros((2, LATTICE.half_volume))
    at_z[SOURCE] = 1
    other = conserved_vector(links, nu, at_z)
    G = inverse.reshape(2, LATTICE.half_volume, 3, 2, LATTICE.half_volume, 3)
    between = (inverse @ other.apply(G.reshape(2, -1, 3, SIZE)).reshape(SIZE, SIZE)).reshape(G.shape)
    found, largest = np.zeros(len(chosen), complex), 0.0
    for number, place in enumerate(chosen):
        delta = np.zeros((2, LATTICE.half_volume))
        delta[place] = 1
        for mu in range(4):
            for sign, w in ((1, delta), (-1, shifted(delta, mu))):
                parities, sites = near(place, mu)
                part, column = (
                    np.ascontiguousarray(each[..., parities, sites, :].reshape(2, -1, 3, 3 * len(sites)))
                    for each in (between, G)
                )
                total = trace_at(conserved_vector(links, mu, w).apply(part), parities, sites)
                if mu == nu:
                    K = StaggeredOperator(contact_term(links, mu, w, at_z), 0.0)
                    total -= trace_at(K.apply(column), parities, sites)
                found[number] += sign * total
                largest = max(largest, abs(total))
    return found, largest


def shifted(w: NDArray, mu: int) -> NDArray:
    """w(x + mu): one at x - mu for one at x."""
    return np.stack([w[1 - parity][LATTICE.neighbour(parity, mu, 1)] for parity in (EVEN, ODD)])


def near(place: tuple[int, int], mu: int) -> tuple[list[int], list[int]]:
    """The sites of the line through x along mu: all that J_mu(x) and J_mu(x - mu) know."""
    parities = [(place[0] + hops) % 2 for hops in range(4)]
    return parities, [int(LATTICE.neighbour(place[0], mu, hops)[place[1]]) for hops in range(4)]


def trace_at(columns: NDArray, parities: list[int], sites: list[int]) -> complex:
    return np.trace(columns[parities, sites].reshape(3 * len(sites), -1))


@pytest.mark.parametrize(
    ("nu", "places"),
    [(1, 7), (3, 5), *(pytest.param(nu, 256, marks=SLOW) for nu in range(4))],
)
def test_divergence_vanishes_at_every_site(nu, places, links, inverses):
    """Contact term included, at the source and next to it, too."""
    parity, site = SOURCE
    chosen = [SOURCE, *((1 - parity, int(LATTICE.neighbour(parity, nu, hops)[site])) for hops in (1, -1, 3))]
    if places == 256:
        chosen = [(p, x) for p in (EVEN, ODD) for x in range(LATTICE.half_volume)]
    else:
        rng = np.random.default_rng(64)
        chosen += [(int(p), int(x)) for p, x in rng.integers((2, 128), size=(places - len(chosen), 2))]
    found, largest = divergence(links, nu, chosen, inverses[MASSES[0]])
    assert largest > 0.01 and np.abs(found).max() < 1e-12


@pytest.mark.slow
def test_divergence_of_solves() -> None:
    """On 8^4, summed with functions f of x: f = 1 at the source, and random everywhere."""
    lattice, nu = Lattice((8, 8, 8, 8)), 0
    thin = random_su3(np.random.default_rng(271), 4, 2, lattice.half_volume, size=0.3)
    links = hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    M = StaggeredOperator(StaggeredDslash(links), 0.2)
    solver = EvenOdd(BlockCGrQ(1e-12), StaggeredSchur)
    at_z = np.zeros((2, lattice.half_volume))
    at_z[EVEN, 1000] = 1
    line = [int(lattice.neighbour(EVEN, nu, hops)[1000]) for hops in range(8)]
    b = np.zeros((2, lattice.half_volume, 3, 24), complex)
    for number, site in enumerate(line):
        b[number % 2, site, :, 3 * number : 3 * number + 3] = np.eye(3)
    quark, bra = solver.solve(M, b).x, conserved_vector(links, nu, at_z).apply(b)
    for f in (at_z, np.random.default_rng(5).normal(size=at_z.shape)):
        parts = []
        for mu in range(4):
            w = f - np.stack([f[1 - p][lattice.neighbour(p, mu, 1)] for p in (EVEN, ODD)])
            parts.append(np.vdot(bra, solver.solve(M, conserved_vector(links, mu, w).apply(quark)).x))
            if mu == nu:
                K = StaggeredOperator(contact_term(links, mu, w, at_z), 0.0)
                parts.append(-np.vdot(b, K.apply(quark)))
        assert abs(sum(parts)) < 1e-9 * max(map(abs, parts))


@pytest.mark.parametrize("label", ["CX", pytest.param("CY", marks=SLOW)])
def test_weights_are_derivatives_of_the_determinant(label, links, dense, inverses):
    """(1/4) ln det M(q a): q^2 [C - contact] is connected, and (q / 4) i Tr J G the root of disconnected."""
    charge, mass, mu, step = 2 / 3, MASSES[1], "XYZ".index(label[1]), 0.02
    rng = np.random.default_rng(55)
    profile = rng.normal(size=LATTICE.volume)
    w = to_parity(profile.reshape(LATTICE.extents[::-1]), LATTICE)

    def free_energy(angle: float) -> complex:
        angles = np.zeros((4, LATTICE.volume))
        angles[mu] = charge * angle * profile
        sign, size = np.linalg.slogdet(dense.operator(mass, angles))
        return 0.25 * (size + 1j * np.angle(sign))

    f = [free_energy(step * n) for n in range(-2, 3)]
    first = (f[0] - 8 * f[1] + 8 * f[3] - f[4]) / (12 * step)
    second = (-f[0] + 16 * f[1] - 30 * f[2] + 16 * f[3] - f[4]) / (12 * step**2)
    G = inverses[mass].reshape(2, -1, 3, SIZE)
    image = conserved_vector(links, mu, w).apply(G).reshape(SIZE, SIZE)
    contact = np.trace(StaggeredOperator(contact_term(links, mu, w, w), 0.0).apply(G).reshape(SIZE, SIZE))
    connected = charge**2 * ((image * image.T).sum() - contact)
    loop = charge * 1j * np.trace(image) / 2
    np.testing.assert_allclose(first, loop, atol=1e-6 * abs(connected))
    np.testing.assert_allclose(second, connected, rtol=1e-5)
    assert abs(contact) > 0.1 * abs((image * image.T).sum())


def test_contact_term_of_a_slice(links, dense, inverses):
    """Tr P_t K G = (1/4) Tr P_t [F - F^dag + 9 (L - L^dag)] G."""
    mu, inverse, b = 2, inverses[MASSES[1]], points(1)
    hops = dense.hop(dense.fat, mu, 1) + 9 * dense.hop(dense.long, mu, 3)
    exact = 0.25 * dense.on_slices()[1] @ np.diag((hops - hops.conj().T) @ inverse)
    found = np.vdot(b, StaggeredOperator(contact_term(links, mu), 0.0).apply(by_field(inverse, b)))
    np.testing.assert_allclose(found, exact, rtol=1e-12)


@pytest.mark.parametrize(
    "label", ["CX", *(pytest.param(each, marks=SLOW) for each in ("G5-G5", "GY-GY", "GZ-G1"))]
)
def test_the_rest_over_noise_is_unbiased(label, links, dense, inverses, low, fields):
    """By random walls of 200 seeds: chi squared of the mean against what LL of these modes leaves."""
    seeds, time, mass, current = 200, 2, MASSES[0], vector_current(links, label)
    walls = [random_wall(LATTICE, time, "a", SEED + n, 0) for n in range(seeds)]
    b = np.ascontiguousarray(np.stack(walls, axis=-2).reshape(2, -1, 3, 3 * seeds))
    solved = (by_field(inverses[mass], each) for each in (b, current.at_source(b)))
    parts = rest_correlator(low, mass, b, *solved, current, current, time)
    matrix = dense.current(label)
    left = dense.trace(matrix, matrix, inverses[mass])[time] - fields.low_low(label, label, mass)[time]
    rest, full = (each.reshape(seeds, 3, 4).sum(axis=1).real for each in (parts.rest, parts.full))
    assert 0.2 < chi_squared(rest, left.real) < 16  # 4 degrees of freedom
    assert chi_squared(full, left.real) > 100


def chi_squared(estimates: NDArray, expected: NDArray) -> float:
    difference, covariance = estimates.mean(axis=0) - expected, np.cov(estimates.T) / len(estimates)
    return float(difference @ np.linalg.solve(covariance, difference))


def test_modes_of_zero_have_no_partner() -> None:
    """Of the periodic free field, where rounding is all that D v is."""
    weights = mode_weights(np.array([1e-15, 0.5]), 0.1)
    assert weights[ODD, ODD, 0] == weights[EVEN, ODD, 0] == 0 and np.isclose(weights[EVEN, EVEN, 0], 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda low, links: vector_current(links, "GX-GY"), "one of G5-G5, GX-GX, .* got 'GX-GY'"),
        (lambda low, links: one_link_vector(links, 3, links.fat), r"is 0 to 2 \(x, y, z\), got 3"),
        (lambda low, links: contact_term(links, 4), r"is 0 to 3 \(x, y, z, t\), got 4"),
        (lambda low, links: conserved_vector(links, 0, np.ones(128)), r"shape \(2, 128\), got \(128,\)"),
        (lambda low, links: vector_current(links.fat, "CX"), "staggered links, .* got ndarray"),
        (lambda low, links: meson_fields(low.space, []), "as lowest\\(A, 64\\).propagator, got Space"),
        (lambda low, links: rest_correlator(links, *(None,) * 7), "got StaggeredLinks"),
        (lambda low, links: meson_fields(low, []), "need a current and width >= 1, got 0 and 16"),
        (lambda low, links: meson_fields(low, [conserved_vector(links, 3)]), "CT hops in time"),
        (lambda low, links: meson_fields(low, [conserved_vector(links, 0)], [(0, 1)]), "three integers"),
        (
            lambda low, links: low.chosen([MODES]),
            f"{MODES} modes are different, 0 to {MODES - 1}, got",
        ),
        (lambda low, links: low.chosen([1, 1]), r"are different, .* got \[1, 1\]"),
        (lambda low, links: mode_weights(np.ones(2), 0.0), "must be positive, got 0.0"),
        (
            lambda low, links: normalised(np.ones(4), LATTICE, "slice", "point"),
            "or 'site', got 'point'",
        ),
        (lambda low, links: random_wall(LATTICE, 4, "a", 5, 0), "t = 4 is outside the lattice"),
        (
            lambda low, links: source_correlator(points(0), points(0), local_current(LATTICE), -1),
            "t of a source must be a whole number of at least 0, got -1",
        ),
    ],
)
def test_mistakes(call: Callable, message: str, low: LowPropagator, links: StaggeredLinks) -> None:
    refuses(message, call, low, links)


def test_unknown_names_of_meson_fields(fields: MesonFields) -> None:
    refuses("have no current 'GT-GT': they have G5-G5", fields.low_low, "GT-GT", "CX", 0.1)
    with pytest.raises(InputError, match=r"have no momentum \(1, 0, 0\): they have \(0, 0, 0\)"):
        fields.low_low("CX", "CX", 0.1, (1, 0, 0))


@pytest.mark.parametrize("phased", [True, False])
def test_signs_of_given_links_are_recognised(phased: bool) -> None:
    thin = random_su3(np.random.default_rng(919), 4, 2, LATTICE.half_volume, size=0.5)
    boundary = ("antiperiodic", "periodic", "periodic", "antiperiodic")
    made = hisq_links(thin, LATTICE, boundary=boundary, naik_epsilon=0.0)
    fat, long = (each if phased else with_phases(each, LATTICE) for each in (made.fat, made.long))
    given = given_links(fat, long, thin, LATTICE)
    assert given.boundary == boundary
    assert np.array_equal(given.fat, made.fat) and np.array_equal(given.long, made.long)
    assert np.array_equal(given.thin(), made.thin())
    for wrong, message in (
        (
            {"boundary": "antiperiodic"},
            "boundary in x .* is antiperiodic, and periodic was stated",
        ),
        ({"phases": not phased}, f"phases of the fat links is {phased}, and {not phased} was stated"),
    ):
        refuses(message, given_links, fat, long, thin, LATTICE, **wrong)
    with pytest.raises(InputError, match="long links do not have the signs of the fat ones"):
        given_links(fat, with_phases(long, LATTICE), thin, LATTICE)
    another = random_su3(np.random.default_rng(8), 4, 2, LATTICE.half_volume, size=9)
    refuses("phases of the fat links cannot be recognised", given_links, fat, long, another, LATTICE)


def numbers_of(links: StaggeredLinks, vectors: NDArray, send: Callable) -> tuple[NDArray, ...]:
    """Eigenvalues, meson fields and rests of all operators, where the links are; send: takes arrays there."""
    count = vectors.shape[-1]
    space = Space.of_eigenpairs(np.zeros(count), send(vectors), np.zeros(count))
    modes, b = LowPropagator.of(StaggeredDslash(links), space), send(random_wall(links.lattice, 1, "a", 5, 0))
    currents = [vector_current(links, label) for label in LABELS]
    fields = [
        meson_fields(modes, currents, momenta, width=10).values
        for momenta in ([(0, 0, 0)], [(0, 0, 0), (1, 0, -1)])
    ]
    rests = [rest_correlator(modes, 0.1, b, b, c.at_source(b), c, c, 1).rest for c in currents]
    return modes.eigenvalues, *fields, np.array(rests)


@pytest.mark.gpu
def test_a_gpu_gives_the_same(links: StaggeredLinks, low: LowPropagator) -> None:
    there = hisq_links(
        links.origin.links, LATTICE, boundary="antiperiodic", naik_epsilon=-0.1, backend="cuda"
    )
    vectors = np.concatenate([v for _, (v, _) in low.blocks()], axis=-1)
    made = numbers_of(links, vectors, np.array), numbers_of(there, vectors, to_device)
    for here, on_gpu in zip(*made, strict=True):
        np.testing.assert_allclose(on_gpu, here, atol=1e-12)


@pytest.mark.gpu
def test_gpus_that_share_a_lattice_give_the_same() -> None:
    group = import_module("stages.lqcd.kernels.cuda.devices.group")
    lattice, rng, made = Lattice((8, 8, 8, 8)), np.random.default_rng(77), []
    thin = random_su3(rng, 4, 2, lattice.half_volume, size=0.5)
    vectors = rng.normal(size=(lattice.half_volume, 3, MODES, 2)) @ [1, 1j]
    for devices in ((0,), (0, 0)):
        with group.spread_over(lattice, devices):
            links = hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=-0.1, backend="cuda")
            made.append(numbers_of(links, vectors, to_device))
    for one, two in zip(*made, strict=True):
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-12 * np.abs(one).max())
