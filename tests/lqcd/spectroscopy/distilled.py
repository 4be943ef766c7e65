"""What tests of distilled mesons share: exact correlators, perambulators, estimates from noise."""

from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from stages.lqcd.distillation.columns import FullColumns, StochasticColumns
from stages.lqcd.distillation.distillation_sources import distillation_sources
from stages.lqcd.distillation.eigenvectors import LaplaceSolver
from stages.lqcd.distillation.elementals import elementals
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.distillation.laph_dilution import LaphDilution
from stages.lqcd.distillation.projection import sink_projections
from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.distilled_mesons import (
    ElementalTable,
    QuarkLine,
    dirac_correlators,
    perambulator_pairs,
    stochastic_pairs,
)
from stages.lqcd.spectroscopy.gammas import NAMES
from stages.lqcd.spectroscopy.mesons import Momentum, meson_correlators
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from support.source_columns import coefficients

BYTES = 1 << 30
"""Bound on what elementals and projections allocate."""


def eigenvectors(links: NDArray, lattice: Lattice, k: int) -> NDArray:
    with kernels_of("reference"):
        return LaplaceSolver(k).solve(links, lattice).vectors


def table_of(vectors, links, lattice: Lattice, momenta, words=("",)) -> ElementalTable:
    values = elementals(vectors, links, Insertions(lattice, momenta, words), np, BYTES)
    return ElementalTable(values, momenta, words, lattice.extents, vectors.shape[-1])


def stochastic_columns(lattice: Lattice, k: int, time: int, noise: int, dilution: LaphDilution):
    return StochasticColumns(((time, noise),), dilution, lattice.time_extent, k, "c.8", 2026, "z4")


def projections(vectors: NDArray, inverse: NDArray, lattice: Lattice, columns) -> NDArray:
    """Of all columns, by way of sources and solutions."""
    sources = distillation_sources(vectors, lattice, columns, range(len(columns)))
    solutions = np.tensordot(inverse, sources, axes=([3, 4, 5], [0, 1, 2]))
    return sink_projections(vectors, solutions, np, BYTES)


def perambulator(vectors: NDArray, inverse: NDArray, lattice: Lattice, time: int) -> NDArray:
    """``[time, spin, i, spin, j]``."""
    k, times = vectors.shape[-1], lattice.time_extent
    full = projections(vectors, inverse, lattice, FullColumns((time,), times, k))
    return full.reshape(times, 4, k, 4, k)


def exact(tau: NDArray, table: ElementalTable, momentum: Momentum, time: int) -> NDArray:
    """All sixteen from a perambulator ``[gamma, time]``."""
    (pairs,) = perambulator_pairs(tau, table, time, [momentum], [""])
    return dirac_correlators(pairs[:, 0, 0], NAMES)


def point_to_all(columns: NDArray, lattice: Lattice, time: int, momenta) -> NDArray:
    """Correlators of all points of a slice, summed ``[gamma, momentum, time]``.

    columns: of the inverse, from the slice ``[parity, site, 12, parity, site of the slice, 12]``.
    """
    total = np.zeros((len(NAMES), len(momenta), lattice.time_extent), complex)
    for point in product(*map(range, lattice.extents[:3])):
        where = np.array((*point, time))
        site = lattice.site(where) - time * lattice.sites_per_slice
        column = columns[:, :, :, where.sum() % 2, site]
        total += meson_correlators(column, lattice, SourcePlace(time, point), NAMES, momenta)
    return total


def quark_line(tau: NDArray, lattice: Lattice, time: int, noise: int, dilution: LaphDilution) -> QuarkLine:
    """Of a noise vector on a slice: solutions and projections are linear in the sources."""
    columns = stochastic_columns(lattice, tau.shape[-1], time, noise, dilution)
    rho = coefficients(columns, range(len(columns)))[time]
    k, width = tau.shape[-1], rho.shape[-1]
    made = tau.reshape(-1, 4 * k) @ rho.reshape(4 * k, width)
    return QuarkLine(made.reshape(len(tau), 4, k, width), rho)


def estimates(tau, table, momentum, lattice: Lattice, time: int, pairs: int, dilution) -> NDArray:
    """From pairs of noise vectors, no vector twice, ``[pair, gamma, time]``."""
    found = []
    for number in range(pairs):
        lines = (quark_line(tau, lattice, time, 2 * number + n, dilution) for n in (0, 1))
        (made,) = stochastic_pairs(*lines, table, time, [momentum], [""])
        found.append(dirac_correlators(made[:, 0, 0], NAMES))
    return np.array(found)


def check_estimates(found: NDArray, expected: NDArray) -> None:
    """The mean is within 4 standard errors everywhere, and chi^2 of some components neither far too large nor
    far too small; errors are not small for want of noise.
    """
    error = found.real.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(found.real.mean(axis=0) - expected.real) < 4 * error).all()
    assert np.median(error / np.abs(expected)) > 1e-3
    some = [NAMES.index(name) for name in ("Gamma5", "GammaX", "SigmaYT")]
    values = found.real[:, some, :6].reshape(len(found), -1)
    assert 1e-3 < chi2_probability(values, expected.real[some, :6].ravel()) < 1 - 1e-3


def chi2_probability(values: NDArray, expected: NDArray) -> float:
    """That Hotelling's T^2 of the mean of independent vectors ``[sample, component]`` is that large."""
    n, p = values.shape
    deviation = values.mean(axis=0) - expected
    t2 = n * deviation @ np.linalg.solve(np.cov(values.T), deviation)
    return float(f_distribution.sf(t2 * (n - p) / (p * (n - 1)), p, n - p))
