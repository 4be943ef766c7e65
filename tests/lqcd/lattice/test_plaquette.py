"""Plaquette and link statistics against NumPy on lexicographic arrays, and their properties."""

from collections.abc import Callable

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.lattice.plaquette import link_statistics, plaquette
from support.lexicographic import gauge_to_lexicographic

RandomSU3 = Callable[[tuple[int, ...], int], NDArray]


def rolled_plaquette(links: NDArray, lattice: Lattice) -> tuple[float, float]:
    """Spatial and temporal mean plaquette by np.roll over the lexicographic array."""
    u = np.moveaxis(gauge_to_lexicographic(links.astype(complex), lattice), 4, 0)
    means = {}
    for mu in range(4):
        for nu in range(mu):
            beside = np.roll(u[nu], -1, axis=3 - mu)
            above = np.roll(u[mu], -1, axis=3 - nu)
            loops = np.einsum("...ij,...jk,...lk,...il->...", u[mu], beside, above.conj(), u[nu].conj())
            means[mu, nu] = loops.real.mean() / 3
    spatial = [mean for (mu, _), mean in means.items() if mu < 3]
    temporal = [mean for (mu, _), mean in means.items() if mu == 3]
    return float(np.mean(spatial)), float(np.mean(temporal))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_plaquette_of_random_links(links: NDArray, lattice: Lattice, dtype: type) -> None:
    stored = links.astype(dtype)
    result = plaquette(stored, lattice)
    spatial, temporal = rolled_plaquette(stored, lattice)
    np.testing.assert_allclose(result.spatial, spatial, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(result.temporal, temporal, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(result.total, (spatial + temporal) / 2, rtol=1e-13, atol=1e-15)


def test_plaquette_of_general_matrices_keeps_the_order_of_factors(lattice: Lattice) -> None:
    rng = np.random.default_rng(7431)
    matrices = rng.normal(size=(4, 2, lattice.half_volume, 3, 3, 2)).view(complex)[..., 0]
    np.testing.assert_allclose(
        plaquette(matrices, lattice)[1:], rolled_plaquette(matrices, lattice), rtol=1e-12
    )


def test_unit_links() -> None:
    lattice = Lattice((2, 4, 2, 2))
    unit = np.broadcast_to(np.eye(3, dtype=complex), (4, 2, lattice.half_volume, 3, 3)).copy()
    assert plaquette(unit, lattice) == (1, 1, 1)
    assert link_statistics(unit) == (1, 0, 0)


def test_gauge_transformation_changes_the_link_trace_but_no_plaquette(links, lattice, random_su3):
    g = random_su3((2, lattice.half_volume), 515)
    transformed = np.empty_like(links)
    for mu in range(4):
        for parity in (EVEN, ODD):
            ahead = g[1 - parity][lattice.neighbour(parity, mu, 1)]
            transformed[mu, parity] = g[parity] @ links[mu, parity] @ ahead.conj().swapaxes(-1, -2)
    np.testing.assert_allclose(plaquette(transformed, lattice), plaquette(links, lattice), atol=1e-14)
    assert abs(link_statistics(transformed).trace - link_statistics(links).trace) > 1e-4
    assert link_statistics(transformed).unitarity_deviation < 1e-14


def test_digits_do_not_depend_on_the_number_of_threads(monkeypatch, random_su3):
    lattice = Lattice((12, 12, 12, 12))
    links = random_su3((4, 2, lattice.half_volume), 86)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", threads)
        results.append((plaquette(links, lattice), link_statistics(links)))
    assert results[0] == results[1]


def test_deviations_from_su3(links: NDArray) -> None:
    changed = links.copy()
    changed[2, 1, 17] *= 1.001
    statistics = link_statistics(changed)
    np.testing.assert_allclose(statistics.unitarity_deviation, 1.001**2 - 1, rtol=1e-10)
    np.testing.assert_allclose(statistics.determinant_deviation, 1.001**3 - 1, rtol=1e-10)
    np.testing.assert_allclose(
        link_statistics(changed).trace, np.trace(changed, axis1=-2, axis2=-1).real.mean() / 3, rtol=1e-12
    )


def test_a_sign_shows_in_the_determinant_alone(links: NDArray) -> None:
    antiperiodic = links.copy()
    antiperiodic[3, 0, -1] *= -1
    statistics = link_statistics(antiperiodic)
    assert statistics.unitarity_deviation < 1e-14
    np.testing.assert_allclose(statistics.determinant_deviation, 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_number_that_is_not_finite_is_never_lost(links: NDArray, bad: float) -> None:
    damaged = links.copy()
    damaged[1, 0, 5, 2, 0] = bad
    statistics = link_statistics(damaged)
    assert not statistics.unitarity_deviation < 1e300
    assert not statistics.determinant_deviation < 1e300


def test_links_of_another_lattice_are_refused(links: NDArray) -> None:
    with pytest.raises(InputError, match=r"links on 4x4x4x4 have shape .* got \(4, 2, 192, 3, 3\)"):
        plaquette(links, Lattice((4, 4, 4, 4)))
