"""Mesons of stochastic LapH: sources, sink projections, and the noise's mean."""

import numpy as np
import pytest
from distilled import (
    check_estimates,
    eigenvectors,
    estimates,
    exact,
    perambulator,
    point_to_all,
    projections,
    quark_line,
    stochastic_columns,
    table_of,
)
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve
from tiny_lattice import LATTICE

from stages.base.errors import InputError
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.distillation.laph_dilution import LaphDilution
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.distilled_mesons import QuarkLine, perambulator_pairs, stochastic_pairs
from support.matrices import matrix_of, random_su3

FEW, SOURCE = 10, 4
MOMENTUM = (1, 0, 0)
WHOLE = Lattice((4, 4, 4, 8))


@pytest.fixture(scope="module")
def vectors(thin_links: NDArray) -> NDArray:
    return eigenvectors(thin_links, LATTICE, FEW)


@pytest.fixture(scope="module")
def tau(vectors: NDArray, inverse: NDArray) -> NDArray:
    return perambulator(vectors, inverse, LATTICE, SOURCE)


@pytest.fixture(scope="module")
def table(vectors: NDArray, thin_links: NDArray):
    return table_of(vectors, thin_links, LATTICE, (MOMENTUM,))


def test_quark_lines_are_sink_projections_of_stochastic_sources(vectors, inverse, tau) -> None:
    dilution = LaphDilution("full", "full", "interlace-5")
    columns = stochastic_columns(LATTICE, FEW, SOURCE, 3, dilution)
    found = projections(vectors, inverse, LATTICE, columns)
    expected = quark_line(tau, LATTICE, SOURCE, 3, dilution).projections
    assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()


def test_full_dilution_has_no_noise(tau, table) -> None:
    expected = exact(tau, table, MOMENTUM, SOURCE)
    dilution = LaphDilution("full", "full", "full")
    (found,) = estimates(tau, table, MOMENTUM, LATTICE, SOURCE, 1, dilution)
    assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("eigenvector", [pytest.param("none", marks=pytest.mark.slow), "interlace-2"])
def test_noise_averages_to_distillation(tau, table, eigenvector) -> None:
    dilution = LaphDilution("full", "full", eigenvector)
    found = estimates(tau, table, MOMENTUM, LATTICE, SOURCE, 300, dilution)
    check_estimates(found, exact(tau, table, MOMENTUM, SOURCE))


def test_projections_of_other_eigenvectors_are_refused(tau, table) -> None:
    line = quark_line(tau, LATTICE, SOURCE, 0, LaphDilution("full", "full", "none"))
    few = QuarkLine(line.projections[:, :, 1:], line.rho[:, 1:])
    with pytest.raises(InputError, match=r"sink projections of shape \(6, 4, 9, 4\) .* do not belong"):
        stochastic_pairs(line, few, table, SOURCE, [MOMENTUM], [""])


@pytest.mark.slow
def test_all_eigenvectors_of_4x4x4x8_and_their_noise() -> None:
    """192 on each slice: the sum over 64 points for all sixteen matrices and two momenta."""
    links, momenta = rough_links(), ((0, 0, 0), (1, 0, -1))
    vectors, columns = eigenvectors(links, WHOLE, 192), slice_columns(links)
    tau, table = slice_perambulator(vectors, columns), table_of(vectors, links, WHOLE, momenta)
    expected = point_to_all(columns, WHOLE, SOURCE, momenta)
    for number, momentum in enumerate(momenta):
        found = exact(tau, table, momentum, SOURCE)
        largest = np.abs(expected[:, number]).max(axis=-1, keepdims=True)
        assert (np.abs(found - expected[:, number]) < 1e-10 * largest).all()
    dilution = LaphDilution("full", "full", "interlace-8")
    found = estimates(tau, table, momenta[1], WHOLE, SOURCE, 150, dilution)
    check_estimates(found, expected[:, 1])


def rough_links() -> NDArray:
    return random_su3(np.random.default_rng(38), 4, 2, WHOLE.half_volume, size=0.3)


def slice_columns(links: NDArray) -> NDArray:
    """M^-1 from all of a slice ``[parity, site, 12, parity, site of the slice, 12]``, by a dense solve."""
    dslash = WilsonDslash(wilson_links(links, WHOLE, boundary="antiperiodic", csw=1.3))
    operator = WilsonOperator(dslash, -0.2)
    size, sites = int(np.prod(operator.shape)), WHOLE.sites_per_slice
    matrix = matrix_of(operator.apply, operator.shape)
    wanted = np.zeros((2, WHOLE.half_volume, 12, 2, sites, 12), complex)
    for parity in (0, 1):
        block = wanted[parity, SOURCE * sites : (SOURCE + 1) * sites, :, parity]
        block[:] = np.eye(12 * sites).reshape(sites, 12, sites, 12)
    solved = lu_solve(lu_factor(matrix, overwrite_a=True), wanted.reshape(size, -1), overwrite_b=True)
    return solved.reshape(wanted.shape)


def slice_perambulator(vectors: NDArray, columns: NDArray) -> NDArray:
    """V(t)^H M^-1 V(t0) ``[time, spin, i, spin, j]``."""
    times, sites, k = len(vectors), WHOLE.sites_per_slice, vectors.shape[-1]
    V = vectors.reshape(times, 6 * sites, k)
    cut = columns.reshape(2, times, sites, 4, 3, 2, sites, 4, 3).transpose(1, 3, 7, 0, 2, 4, 5, 6, 8)
    inner = cut.reshape(times, 4, 4, 6 * sites, 6 * sites) @ V[SOURCE]
    tau = V.conj().swapaxes(1, 2)[:, None, None] @ inner
    return tau.transpose(0, 1, 3, 2, 4)


@pytest.mark.gpu
def test_pairs_are_the_same_on_a_device(tau, table) -> None:
    cupy = pytest.importorskip("cupy")
    words, momenta = ("",), [MOMENTUM]
    lines = [quark_line(tau, LATTICE, SOURCE, n, LaphDilution("full", "full", "interlace-2")) for n in (0, 1)]
    there = [QuarkLine(*map(cupy.asarray, line)) for line in lines]
    for found, expected in (
        (
            perambulator_pairs(cupy.asarray(tau), table, SOURCE, momenta, words),
            perambulator_pairs(tau, table, SOURCE, momenta, words),
        ),
        (
            stochastic_pairs(*there, table, SOURCE, momenta, words),
            stochastic_pairs(*lines, table, SOURCE, momenta, words),
        ),
    ):
        assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()
