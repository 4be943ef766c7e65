"""Generalised perambulators against dense matrices, derivatives in the mass, and each other."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline import At
from stages.base.errors import InputError
from stages.distillation.current_insertion import CurrentInsertion, Currents, current_insertion
from stages.distillation.laplace_eigenvectors import LaplaceBasis
from stages.distillation.perambulator import perambulator
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.wilson_operator import Hops, wilson_operator
from stages.lqcd.dirac.displacement import steps_of
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.distillation.columns import FullColumns
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.stout import stout_links
from stages.lqcd.kernels.transfer import to_backend
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.gammas import DIRAC, NAMES
from support.matrices import matrix_of

LATTICE = Lattice((4, 2, 2, 6))
TIMES, SITES, K = LATTICE.time_extent, LATTICE.sites_per_slice, 2
MOMENTA, WORDS = ((0, 0, 0), (1, 0, -1)), ("", "-x+y", "+z")
SOLVES = Solve("block_cgrq", 1e-13, "double", block=8)
ASKED = {"momenta": MOMENTA, "displacements": WORDS}


@pytest.fixture(scope="module")
def gauge() -> GaugeLinks:
    return GaugeLinks(thermalised(LATTICE, 5.7, 21, "i.1", 4, 1), np.array(LATTICE.extents))


def operator_on(gauge: GaugeLinks, backend: str = "cpu", mass: float = 0.1) -> WilsonOperator:
    """M on stout links."""
    at, stout = At(config="i.1", backend=backend), {"rho": 0.1, "steps": 1}
    return wilson_operator(
        gauge, at=at, boundary="antiperiodic", mass=mass, csw=1.2, hops=Hops(nu=0.8, stout=stout)
    )


@pytest.fixture(scope="module")
def operator(gauge: GaugeLinks) -> WilsonOperator:
    return operator_on(gauge)


@pytest.fixture(scope="module")
def basis() -> LaplaceBasis:
    """Random orthonormal vectors on each slice."""
    rng = np.random.default_rng(62)
    columns = rng.normal(size=(TIMES, 6 * SITES, K, 2)).view(complex)[..., 0]
    vectors = np.linalg.qr(columns)[0].reshape(TIMES, 2, SITES, 3, K)
    return LaplaceBasis(vectors, np.zeros((TIMES, K)))


def measured(operator, basis, times=(1,), separations=(3,), backend="cpu", **options) -> CurrentInsertion:
    at = At(config="i.1", source=tuple(f"t{time}" for time in times), backend=backend)
    columns = FullColumns(times, TIMES, K)
    names = [each.name for each in fields(Solve)]
    solve = replace(SOLVES, **{name: options.pop(name) for name in names if name in options})
    currents = Currents(separations, **{**ASKED, **options})
    return current_insertion(operator, basis, columns, at=at, currents=currents, solve=solve)


def dense_inverse(operator: WilsonOperator) -> NDArray:
    """``[n, n]``, n over parity, site and component."""
    return np.linalg.inv(matrix_of(operator.apply, operator.shape))


def dense_vectors(basis: LaplaceBasis, time: int) -> NDArray:
    """V of a slice as a matrix ``[n, (spin, eigenvector)]``."""
    V = np.zeros((2, TIMES, SITES, 4, 3, 4, K), complex)
    for spin in range(4):
        V[:, time, :, spin, :, spin] = basis.vectors[time]
    return V.reshape(-1, 4 * K)


def sites() -> list[tuple[int, NDArray]]:
    """(number in parity-major order, coordinates)."""
    both = np.concatenate([LATTICE.coordinates(parity) for parity in (0, 1)])
    return list(enumerate(np.asarray(both, int)))


def path(word: str, links: NDArray) -> NDArray:
    """The displacement as a matrix ``[site, colour, site, colour]``, walked link by link."""
    number = {tuple(x): n for n, x in sites()}
    flat = links.reshape(4, LATTICE.volume, 3, 3)
    D = np.zeros((LATTICE.volume, 3, LATTICE.volume, 3), complex)
    for start, x in sites():
        here, walked = x.copy(), np.eye(3)
        for mu, step in steps_of(word):
            before = number[tuple(here)]
            here[mu] = (here[mu] + step) % LATTICE.extents[mu]
            after = number[tuple(here)]
            walked = walked @ (flat[mu, before] if step == 1 else flat[mu, after].conj().T)
        D[start, :, number[tuple(here)]] = walked
    return D


def dense(operator: WilsonOperator, links: NDArray, basis: LaplaceBasis, source: int, sink: int) -> NDArray:
    """V^dag(t_f) M^-1 [Gamma e^{ipx} D](t) M^-1 V(t_0), as it stands; links: those of D."""
    inverse, coordinates = dense_inverse(operator), np.array([x for _, x in sites()])
    left = (dense_vectors(basis, sink).conj().T @ inverse).reshape(4 * K, -1, 4, 3)
    right = (inverse @ dense_vectors(basis, source)).reshape(-1, 4, 3, 4 * K)
    G = np.empty((TIMES, len(NAMES), len(MOMENTA), len(WORDS), 4 * K, 4 * K), complex)
    for (p, momentum), (d, word) in product(enumerate(MOMENTA), enumerate(WORDS)):
        wave = np.exp(2j * np.pi * coordinates[:, :3] @ (np.array(momentum) / LATTICE.extents[:3]))
        moved = np.einsum("xcyb,ysbj->xscj", path(word, links), right)
        for t, (g, gamma) in product(range(TIMES), enumerate(DIRAC.values())):
            weight = wave * (coordinates[:, 3] == t)
            turned = np.einsum("x,rs,xscj->xrcj", weight, gamma, moved)
            G[t, g, p, d] = left.reshape(4 * K, -1) @ turned.reshape(-1, 4 * K)
    return G.reshape(*G.shape[:4], 4, K, 4, K)


@pytest.mark.parametrize("mu", [0.0, pytest.param(0.3, marks=pytest.mark.slow)])
def test_against_dense_matrices(gauge, operator, basis, mu) -> None:
    """All Dirac matrices, two momenta, displacements along stout links; a sink beyond a boundary."""
    operator = operator.with_twist(mu)
    made = measured(operator, basis, times=(4,), separations=(1, 3))
    assert made.insertion.shape == (1, 2, TIMES, 16, 2, 3, 4, K, 4, K)
    assert made.source_time.tolist() == [4] and made.sink_time.tolist() == [[5, 1]]
    links = stout_links(gauge.links, LATTICE, 0.1, 1)
    for number, sink in enumerate((5, 1)):
        expected = dense(operator, links, basis, 4, sink)
        assert np.abs(made.insertion[0, number] - expected).max() < 1e-10 * np.abs(expected).max()


@pytest.mark.parametrize("mu", [0.0, pytest.param(0.3, marks=pytest.mark.slow)])
def test_a_constant_scalar_current_is_a_derivative_in_the_mass(gauge, basis, mu) -> None:
    step, columns, at = 1e-3, FullColumns((2,), TIMES, K), At(config="i.1", source=("t2",))
    tau = {
        sign: perambulator(operator.with_twist(mu), basis, columns, at=at, solve=SOLVES)
        for sign, operator in ((sign, operator_on(gauge, mass=0.1 + sign * step)) for sign in (-1, 1))
    }
    slope = (tau[1].perambulator[0] - tau[-1].perambulator[0]) / (2 * step)
    made = measured(operator_on(gauge).with_twist(mu), basis, times=(2,), separations=(1, 5))
    scalar = made.insertion[0, :, :, NAMES.index("Identity"), 0, 0].sum(axis=1)
    for total, sink in zip(scalar, (3, 1), strict=True):
        assert np.abs(total + slope[sink]).max() < 1e-5 * np.abs(total).max()


@pytest.mark.parametrize("mu", [0.0, pytest.param(0.3, marks=pytest.mark.slow)])
def test_blocks_and_chunks_give_the_same(operator, basis, mu) -> None:
    """Of sources at 1 and 4 both are a sink, too: without a twist their slices are solved for once."""
    operator = operator.with_twist(mu)
    both = measured(operator, basis, times=(1, 4), solver="cgnr", block=3)
    largest = np.abs(both.insertion).max()
    for number, time in enumerate((1, 4)):
        alone = measured(operator, basis, times=(time,))
        assert np.abs(both.insertion[number] - alone.insertion[0]).max() < 1e-10 * largest
        assert both.sink_time[number].tolist() == alone.sink_time[0].tolist() == [(time + 3) % TIMES]
        assert both.sink_residual[number].max() < 1e-11 and both.residual[number].max() < 1e-11


def test_residuals_and_what_is_recorded(operator, basis) -> None:
    at = At(config="i.1", source=("t1", "t4"))
    columns = FullColumns((1, 4), TIMES, K)
    made = current_insertion(operator, basis, columns, at=at, currents=Currents((3, 2)), solve=SOLVES)
    assert at.statistics["rhs"] == 4 * 4 * K  # slices 1, 4, 3 and 0
    assert len(at.reports) == 4 and at.reports[-1]["done"] == at.reports[-1]["total"]
    assert made.residual.shape == (2, 4, K) and made.sink_residual.shape == (2, 2, 4, K)
    assert np.array_equal(made.sink_residual[:, 0], made.residual[::-1])
    for found in (made.residual, made.full_residual, made.sink_residual, made.sink_full_residual):
        assert 0 < found.max() < 1e-11
    assert at.statistics["residual_max"] == max(made.residual.max(), made.sink_residual.max())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separations": (0,)}, r"a separation of 0 between source and sink .* take 1 to 5"),
        ({"separations": (2, 6)}, r"a separation of 6 between source and sink .* take 1 to 5"),
        ({"separations": (2, 2)}, r"at least one, and each once, got \(2, 2\)"),
        ({"separations": ()}, r"at least one, and each once, got \(\)"),
        ({"momenta": ((0.5, 0, 0),)}, r"a momentum is three integers"),
        ({"displacements": ("+t",)}, r"a displacement is a word of up to 3"),
        ({"solver": "cg"}, r"solver must be one of"),
    ],
)
def test_refusals(operator, basis, options, message) -> None:
    with pytest.raises(InputError, match=message):
        measured(operator, basis, **options)


def test_more_eigenvectors_than_there_are(operator, basis) -> None:
    few = replace(basis, vectors=basis.vectors[..., :1])
    with pytest.raises(InputError, match="columns are of 2 eigenvectors, but 1 are given"):
        measured(operator, few)


@pytest.mark.gpu
def test_on_a_device_as_on_the_host(gauge, basis) -> None:
    """Eigenvectors there, or on the host beside it."""
    host = measured(operator_on(gauge), basis, separations=(2, 3))
    operator = operator_on(gauge, "cuda")
    moved = replace(basis, vectors=to_backend(basis.vectors, "cuda"))
    for vectors in (moved, basis):
        device = measured(operator, vectors, separations=(2, 3), backend="cuda")
        assert isinstance(device.insertion, np.ndarray)
        assert np.abs(device.insertion - host.insertion).max() < 1e-10 * np.abs(host.insertion).max()
