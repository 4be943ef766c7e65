"""Stages of distillation, called as functions: eigenvectors, perambulators, projections of noise."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline import At
from stages.base.errors import InputError
from stages.distillation.laplace_eigenvectors import (
    LaplaceBasis,
    check_times,
    laplace_basis,
    laplace_eigenvectors,
)
from stages.distillation.operator_elementals import elementals
from stages.distillation.perambulator import (
    first_sources,
    full_columns,
    perambulator,
    sink_projection,
    stochastic_columns,
)
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.smeared_links import smeared_links
from stages.ensemble.wilson_operator import wilson_operator
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import Solve
from stages.mesons.solver_choice import PlannedSolves, solver_choice
from stages.shared.solver_trials import Eigensolve, costs
from support.source_columns import coefficients

LATTICE = Lattice((4, 4, 4, 6))
TIMES = LATTICE.time_extent
SOLVES = Solve("cgnr", 1e-11, "double", block=8)


@pytest.fixture(scope="module")
def gauge():
    return GaugeLinks(thermalised(LATTICE, 5.9, 11, "d.1", 4, 1), np.array(LATTICE.extents))


@pytest.fixture(scope="module")
def links(gauge):
    return smeared_links(gauge, at=At(config="d.1"), kind="stout", steps=2, rho=0.1)


@pytest.fixture(scope="module")
def operator(gauge):
    return wilson_operator(gauge, at=At(config="d.1"), boundary="antiperiodic", mass=0.2)


def modes(links, times, **options):
    options = {"vectors": 4, "block": 3, **options}
    return laplace_eigenvectors(links, at=At(config="d.1", time=times), **options)


@pytest.fixture(scope="module")
def basis(links):
    """Of chunks of two and of four slices."""
    chunks = [(At(config="d.1", time=times), modes(links, times)) for times in ((0, 1), (2, 3, 4, 5))]
    return laplace_basis(chunks, at=At(config="d.1"), time_extent=TIMES)


def test_slices_in_any_chunks(links, basis):
    whole = modes(links, range(TIMES))
    assert np.abs(basis.vectors - whole.vectors).max() < 1e-7
    np.testing.assert_allclose(basis.values, whole.eigenvalue, atol=1e-10)
    assert whole.residual.max() < 1e-8
    single = modes(links, range(TIMES), vectors=3, precision="single", tolerance=1e-5)
    assert single.vectors.dtype == np.complex64
    np.testing.assert_allclose(single.eigenvalue, whole.eigenvalue[:, :3], atol=1e-4)


def test_perambulator_is_the_projected_propagator(operator, basis):
    """tau(t', t) = gamma5 tau(t, t')^dag gamma5, and residuals."""
    at = At(config="d.1", source=("t4", "t1"))
    columns = full_columns(at=at, time_extent=TIMES, eigenvectors=4)
    made = perambulator(operator, basis, columns, at=at, solve=SOLVES)
    tau = made.perambulator
    assert tau.shape == (2, TIMES, 4, 4, 4, 4) and made.source_time.tolist() == [4, 1]
    assert made.full_residual.max() < 1e-10
    gamma5 = np.array([1, 1, -1, -1])
    backward = tau[0, 1].transpose(2, 3, 0, 1).conj() * gamma5[:, None, None, None] * gamma5[:, None]
    assert np.abs(tau[1, 4] - backward).max() < 1e-9 * np.abs(tau).max()
    assert at.statistics["rhs"] == 32


def test_projections_of_noise_are_perambulators_times_noise(operator, basis):
    at = At(config="d.1", source=("t2n0", "t2n3"))
    dilution = {"time": "full", "spin": "full", "eigenvector": "none"}
    columns = stochastic_columns(
        at=at, time_extent=TIMES, eigenvectors=4, dilution=dilution, kind="z4", seed=5
    )
    made = sink_projection(operator, basis, columns, at=at, solve=SOLVES)
    assert made.projection.shape == (2, TIMES, 4, 4, 4)
    place = At(config="d.1", source=("t2",))
    full = full_columns(at=place, time_extent=TIMES, eigenvectors=4)
    tau = perambulator(operator, basis, full, at=place, solve=SOLVES).perambulator[0]
    rho = coefficients(columns, range(8))[2].reshape(4, 4, 2, 4)
    expected = np.einsum("txisj,sjnc->ntxic", tau, rho)
    assert np.abs(made.projection - expected).max() < 1e-9 * np.abs(tau).max()


def test_the_first_sources_are_the_first_columns(operator, basis):
    """Their projections are the columns' coefficients, and there is nothing beside these."""
    at = At(config="d.1", source=("t4", "t1"))
    noise = At(config="d.1", source=("t2n0", "t2n3"))
    full = full_columns(at=at, time_extent=TIMES, eigenvectors=4)
    dilution = {"time": "full", "spin": "full", "eigenvector": "interlace-2"}
    diluted = stochastic_columns(
        at=noise, time_extent=TIMES, eigenvectors=4, dilution=dilution, kind="z4", seed=5
    )
    for columns, block, width in ((full, 10, 10), (diluted, 10, 10), (diluted, 64, 16)):
        fields = first_sources(operator, basis, columns, at=at, block=block).fields
        rho = coefficients(columns, range(width))
        projected = np.einsum(
            "tpxci,ptxscn->tsin", basis.vectors.conj(), fields.reshape(2, TIMES, -1, 4, 3, width)
        )
        assert fields.shape == (2, LATTICE.half_volume, 12, width)
        assert np.abs(projected - rho).max() < 1e-12
        np.testing.assert_allclose((abs(fields) ** 2).sum(), (abs(rho) ** 2).sum(), rtol=1e-12)


def test_solvers_are_measured_on_the_first_sources(operator, basis):
    """Each solves for a block of them, in its precision; costs are those of all that are planned."""
    names = ["bicgstab double-single 8", "bicgstab double 8", "cgnr double 8", "cgnr double 4"]
    at = At(config="d.1", source=("t4",))
    columns = full_columns(at=at, time_extent=TIMES, eigenvectors=4)
    sources = first_sources(operator, basis, columns, at=at, block=8)
    options = {"candidates": names, "levels": [], "seed": 8}
    trials = solver_choice(operator, [(at, sources)], at=at, solves=PlannedSolves(1e-9, 96, 900), **options)
    assert trials.residual.shape == (4, 1) and np.nanmax(trials.residual) <= 1e-9
    assert np.nanmin(trials.residual) < 0.9e-9 and at.statistics["columns"] == 8
    cost = costs(trials, options["candidates"], at.statistics, Eigensolve(7.0))
    expected = trials.setup_seconds + 96 * trials.seconds_per_rhs[:, 0]
    assert cost == {name: c for name, c in zip(names, expected, strict=True) if np.isfinite(c)}
    assert set(at.statistics["how"]) >= set(names[:3])


def test_elementals(links, basis):
    """Those at rest without displacement are 1; the adjoint of a shift is the shift back."""
    momenta, words = [(0, 0, 0), (1, 0, -1), (-1, 0, 1)], ["", "+x", "-x"]
    made = elementals(links, basis, at=At(config="d.1"), momenta=momenta, displacements=words)
    values = made.elementals
    assert values.shape == (TIMES, 3, 3, 4, 4) and made.momentum.tolist() == [list(p) for p in momenta]
    assert np.abs(values[:, 0, 0] - np.eye(4)).max() < 1e-12
    dagger = values.conj().swapaxes(-1, -2)
    assert np.abs(values[:, 1, 0] - dagger[:, 2, 0]).max() < 1e-12
    assert np.abs(values[:, 0, 1] - dagger[:, 0, 2]).max() < 1e-12 and np.abs(values[:, 0, 1]).max() > 0.1


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0, 1, 3, 4, 5], r"time slices \[2\] are missing: all 6 of a configuration"),
        ([1, 0, 2, 3, 4, 5], r"time slices \[1, 0, 2, 3, 4, 5\] are out of order"),
    ],
)
def test_slices_that_are_missing(times, message):
    with pytest.raises(InputError, match=message):
        check_times(times, 6)


def test_eigenvectors_of_other_links(gauge, basis):
    at = At(config="d.1")
    other = smeared_links(gauge, at=at, kind="stout", steps=3, rho=0.1)
    with pytest.raises(InputError, match=r"residuals up to .* are not those of these links"):
        elementals(other, basis, at=at)


def test_refusals(links, operator, basis):
    with pytest.raises(InputError, match="precision must be one of double, single, got 'half'"):
        modes(links, (0, 1), precision="half")
    with pytest.raises(InputError, match=r"got \[1, 2\]: take an even chunk"):
        modes(links, (1, 2))
    at = At(config="d.1", source=("t4",))
    columns = full_columns(at=at, time_extent=TIMES, eigenvectors=5)
    with pytest.raises(InputError, match="columns are of 5 eigenvectors, but 4 are given"):
        perambulator(operator, basis, columns, at=at, solve=SOLVES)
    other = LaplaceBasis(basis.vectors[:4], basis.values[:4])
    with pytest.raises(InputError, match=r"eigenvectors of the Laplacian on 4x4x4x6 have shape"):
        perambulator(operator, other, columns, at=at, solve=SOLVES)
