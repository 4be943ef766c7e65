"""Meson two-point functions against Wick contractions of the dense inverse, backward propagator included."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_lattice import LATTICE

from stages.base.errors import InputError
from stages.lqcd.kernels.gamma import GAMMA
from stages.lqcd.spectroscopy.gammas import CHANNELS, DIRAC, NAMES
from stages.lqcd.spectroscopy.mesons import meson_correlators
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, z2_wall_source

PLACE = SourcePlace(5, (3, 1, 0))
MOMENTA = ((0, 0, 0), (1, 0, 0), (-1, 0, 1))


def propagator(inverse: NDArray, source: NDArray) -> NDArray:
    """M^-1 of columns ``[parity, site, 12, column]``."""
    return np.tensordot(inverse, source, axes=([3, 4, 5], [0, 1, 2]))


def column_of(inverse: NDArray, place: SourcePlace) -> NDArray:
    """The propagator from a point ``[parity, site, 12, 12]``."""
    assert place.point is not None
    coordinates = np.array((*place.point, place.time))
    return inverse[:, :, :, coordinates.sum() % 2, LATTICE.site(coordinates)]


def wick(inverse: NDArray, place: SourcePlace, name: str, momentum: tuple[int, ...]) -> NDArray:
    """-sum_x exp(-ip(x - x0)) tr [G S(x, x0) Gbar S(x0, x)], site by site."""
    assert place.point is not None
    start = np.array((*place.point, place.time))
    gamma = np.kron(DIRAC[name], np.eye(3))
    bar = np.kron(GAMMA[3] @ DIRAC[name].conj().T @ GAMMA[3], np.eye(3))
    parity, site = start.sum() % 2, LATTICE.site(start)
    correlator = np.zeros(LATTICE.time_extent, complex)
    for p in range(2):
        for s, x in enumerate(LATTICE.coordinates(p)):
            forward, backward = inverse[p, s, :, parity, site], inverse[parity, site, :, p, s]
            angle = 2 * np.pi * np.sum(np.array(momentum) * (x - start)[:3] / LATTICE.extents[:3])
            trace = np.trace(gamma @ forward @ bar @ backward)
            correlator[(x[3] - start[3]) % LATTICE.time_extent] -= np.exp(-1j * angle) * trace
    return correlator


def test_all_sixteen_are_wick_contractions(inverse: NDArray) -> None:
    found = meson_correlators(column_of(inverse, PLACE), LATTICE, PLACE, NAMES, MOMENTA)
    assert found.shape == (16, 3, 6)
    for number, name in enumerate(NAMES):
        for k, momentum in enumerate(MOMENTA):
            expected = wick(inverse, PLACE, name, momentum)
            assert np.abs(found[number, k] - expected).max() < 1e-13, (name, momentum)


def chromas(number: int) -> NDArray:
    """Chroma's Gamma(n): the product, in this order, of gamma_x, y, z, t whose bits 1, 2, 4, 8 are set."""
    matrix = np.eye(4, dtype=complex)
    for mu, gamma in enumerate(GAMMA):
        matrix = matrix @ gamma if number >> mu & 1 else matrix
    return matrix


def test_the_table_beside_chromas_correlators(inverse: NDArray) -> None:
    """Of docs/conventions.md: tr [(gamma5 S gamma5)^dag Gamma S Gamma] with exp(+ipx), and no minus sign."""
    text = (Path(__file__).parents[3] / "docs" / "conventions.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([+-]) \| ([+-]) \|$", text, re.MULTILINE)
    assert [row[0] for row in rows] == list(NAMES)
    column, momenta = column_of(inverse, PLACE), ((0, 0, 0), (1, 0, -1))
    found = meson_correlators(column, LATTICE, PLACE, NAMES, momenta)
    S = np.concatenate(column).reshape(-1, 4, 3, 4, 3)
    sites = np.concatenate([LATTICE.coordinates(parity) for parity in (0, 1)])
    five = np.einsum("ab,xbicj,cd->xaidj", chromas(15), S, chromas(15))
    for k, (name, number, multiple, sign) in enumerate(rows):
        gamma = chromas(int(number))
        np.testing.assert_array_equal(DIRAC[name], float(f"{multiple}1") * gamma)
        trace = np.einsum("xaibj,ac,xcidj,db->x", five.conj(), gamma, S, gamma, optimize=True)
        for number, momentum in enumerate(momenta):
            angle = 2 * np.pi * (sites[:, :3] * momentum / LATTICE.extents[:3]).sum(axis=1)
            start = 2 * np.pi * np.sum(np.array(PLACE.point) * momentum / LATTICE.extents[:3])
            terms = trace * np.exp(1j * (start - angle))  # Chroma's momentum is -p, its phase begins at 0
            times = (sites[:, 3] - PLACE.time) % LATTICE.time_extent
            sums = [terms[times == t].sum() for t in range(LATTICE.time_extent)]
            np.testing.assert_allclose(found[k, number], float(f"{sign}1") * np.array(sums), atol=1e-13)


def test_charge_conjugation_as_chroma_has_it() -> None:
    C = chromas(10)
    for gamma in GAMMA:
        np.testing.assert_array_equal(C @ gamma, -gamma.T @ C)
    np.testing.assert_array_equal(C @ chromas(15), chromas(5))


def test_pion_is_the_norm_of_the_propagator(inverse: NDArray) -> None:
    column = column_of(inverse, PLACE)
    (pion,) = meson_correlators(column, LATTICE, PLACE, ["Gamma5"], [(0, 0, 0)])
    norms = (np.abs(column) ** 2).reshape(2, LATTICE.time_extent, -1).sum(axis=(0, 2))
    np.testing.assert_allclose(pion[0], np.roll(norms, -PLACE.time), rtol=1e-13)
    assert np.all(pion[0].real > 0)


def test_z2_walls_estimate_the_mean_over_points(inverse: NDArray) -> None:
    """Over many vectors, the mean of all points of the slice, within errors; each vector differs."""
    points = [SourcePlace(2, (x, y, z)) for x in range(4) for y in range(2) for z in range(2)]
    names = ["Gamma5", "GammaX", "Identity"]
    exact = np.mean(
        [meson_correlators(column_of(inverse, at), LATTICE, at, names, [(0, 0, 0)]) for at in points], axis=0
    )
    found = []
    for number in range(100):
        place = SourcePlace(2, None, number)
        source = z2_wall_source(LATTICE, place, "walls", 33)
        found.append(meson_correlators(propagator(inverse, source), LATTICE, place, names, [(0, 0, 0)]))
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert (error > 0).all()
    pulls = np.abs(np.mean(found, axis=0) - exact) / error
    assert pulls.max() < 3.5  # one fluctuation moves all times


def test_dirac_matrices_are_a_basis() -> None:
    matrices = np.stack([DIRAC[name].ravel() for name in NAMES])
    np.testing.assert_allclose(matrices @ matrices.conj().T, 4 * np.eye(16), atol=1e-15)
    assert {name for names in CHANNELS.values() for name in names} <= set(NAMES)


def test_what_is_refused(inverse: NDArray) -> None:
    column = column_of(inverse, PLACE)
    with pytest.raises(InputError, match=r"12 columns .* or 4 .*, got 5"):
        meson_correlators(column[..., :5], LATTICE, PLACE, ["Gamma5"], [(0, 0, 0)])
    with pytest.raises(InputError, match=r"one of Identity, Gamma5, .* got 'gamma5'"):
        meson_correlators(column, LATTICE, PLACE, ["gamma5"], [(0, 0, 0)])
