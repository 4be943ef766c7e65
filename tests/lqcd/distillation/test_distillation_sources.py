"""Sources of distillation and stochastic LapH from orthonormal vectors on each slice."""

from importlib import import_module

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.distillation.columns import FullColumns, StochasticColumns
from stages.lqcd.distillation.distillation_sources import distillation_sources
from stages.lqcd.distillation.laph_dilution import LaphDilution
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.geometry import Lattice
from support.source_columns import beginning, coefficients

LATTICE, VECTORS = Lattice((4, 2, 2, 6)), 8
TIMES, SITES = LATTICE.time_extent, LATTICE.sites_per_slice
SCHEME = LaphDilution("interlace-3", "full", "interlace-2")
DILUTED = StochasticColumns(((1, 0), (2, 0), (1, 9)), SCHEME, TIMES, VECTORS, "e.4", 81, "z4")
WHOLE = StochasticColumns(((0, 2),), LaphDilution(), TIMES, VECTORS, "e.4", 81, "u1")
FULL = FullColumns((5, 2), TIMES, VECTORS)


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    return import_module(request.param)


@pytest.fixture
def vectors():
    """Orthonormal on each slice, ``[time, parity, site, colour, eigenvector]``."""
    rng, shape = np.random.default_rng(61), (TIMES, 2 * SITES * 3, VECTORS)
    q, _ = np.linalg.qr(rng.normal(size=shape) + 1j * rng.normal(size=shape))
    return q.reshape(TIMES, 2, SITES, 3, VECTORS)


def built(xp, vectors, columns, width=5):
    """All columns, in blocks."""
    blocks = [range(n, min(n + width, len(columns))) for n in range(0, len(columns), width)]
    given = xp.asarray(vectors)
    made = [as_numpy(distillation_sources(given, LATTICE, columns, block, xp)) for block in blocks]
    return np.concatenate(made, axis=-1)


def test_full_distillation_is_eigenvectors_on_time_and_spin(xp, vectors):
    fields = built(xp, vectors, FULL)
    assert fields.shape == (2, LATTICE.half_volume, 12, 2 * 4 * VECTORS) and fields.dtype == np.complex128
    for number in range(len(FULL)):
        time, spin, eigenvector = beginning(FULL, number)
        expected = np.zeros((2, TIMES, SITES, 4, 3), complex)
        expected[:, time, :, spin] = vectors[time, ..., eigenvector]
        assert np.array_equal(fields[..., number], expected.reshape(2, -1, 12))


@pytest.mark.parametrize("columns", [DILUTED, WHOLE], ids=["diluted", "whole"])
def test_stochastic_sources_by_definition(xp, vectors, columns):
    rho = coefficients(columns, range(len(columns)))
    expected = np.einsum("tpxai,tsin->ptxsan", vectors, rho).reshape(2, LATTICE.half_volume, 12, -1)
    assert np.abs(built(xp, vectors, columns) - expected).max() < 1e-14


@pytest.mark.parametrize("columns", [DILUTED, WHOLE, FULL], ids=["diluted", "whole", "full"])
def test_projection_onto_eigenvectors_gives_the_coefficients(xp, vectors, columns):
    """V^H phi = rho at every time, spin and eigenvector: what is projected can be told from its labels."""
    fields = built(xp, vectors, columns).reshape(2, TIMES, SITES, 4, 3, -1)
    projected = np.einsum("tpxai,ptxsan->tsin", vectors.conj(), fields)
    assert np.abs(projected - coefficients(columns, range(len(columns)))).max() < 1e-14


def test_more_vectors_than_the_columns_need_and_single_precision(xp, vectors):
    few = FullColumns((1,), TIMES, 3)
    single = vectors.astype(np.complex64)
    fields = built(xp, single, few)
    assert fields.dtype == np.complex128
    slice_1 = fields.reshape(2, TIMES, SITES, 4, 3, -1)[:, 1, :, 2]
    assert np.array_equal(slice_1[..., 6:9], single[1, ..., :3].astype(complex))


def test_sources_average_to_the_projector(vectors):
    """sum over columns of phi phi^H is V V^H on each slice in full distillation."""
    fields = built(np, vectors, FullColumns((4,), TIMES, VECTORS)).reshape(2, TIMES, SITES, 4, 3, -1)
    basis = vectors[4].reshape(-1, VECTORS)
    for spin in range(4):
        part = fields[:, 4, :, spin].reshape(len(basis), -1)
        assert np.abs(part @ part.conj().T - basis @ basis.conj().T).max() < 1e-14


def test_refusals(vectors):
    block = range(2)
    with pytest.raises(
        InputError, match=r"eigenvectors of the Laplacian on 4x2x2x6 have shape \(6, 2, 8, 3\)"
    ):
        distillation_sources(vectors[:5], LATTICE, FULL, block)
    with pytest.raises(InputError, match="columns are of 9 eigenvectors, but 8 are given"):
        distillation_sources(vectors, LATTICE, FullColumns((0,), TIMES, 9), block)
    with pytest.raises(InputError, match="columns are on 8 time slices, the lattice is 4x2x2x6"):
        distillation_sources(vectors, LATTICE, FullColumns((0,), 8, VECTORS), block)
    with pytest.raises(InputError, match="a block of sources has at least one column"):
        distillation_sources(vectors, LATTICE, FULL, range(0))
    with pytest.raises(InputError, match="there are 64 columns, numbered from 0, got column 64"):
        distillation_sources(vectors, LATTICE, FULL, range(60, 65))
