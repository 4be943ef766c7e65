"""Eigenvectors of the Laplacian: dense matrices, the free field, a file of reference values, covariance."""

import numba
import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.laplacian import SpatialHop
from stages.lqcd.distillation.eigenvectors import LaplaceSolver, residuals
from stages.lqcd.gauge.stout import SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.lattice.formats import read_gauge
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.matrices import random_su3
from workflows.certification.fields import rotated, unit_links

pytestmark = pytest.mark.usefixtures("reference_kernels")

ROUGH = Lattice((4, 4, 4, 4))
WIDE = Lattice((6, 6, 6, 4))


def solver(vectors, block=8, tolerance=1e-10, **options):
    return LaplaceSolver(vectors, block, tolerance, **options)


def rough(lattice, seed=3):
    return random_su3(np.random.default_rng(seed), 4, 2, lattice.half_volume, size=0.4)


def dense(links, lattice):
    """-Laplacian of each slice as a matrix ``[T, n, n]`` on (parity, site of the slice, colour)."""
    hop, T = SpatialHop(links, lattice), lattice.time_extent
    rows = 3 * lattice.half_volume // T
    matrices = np.zeros((T, 2, rows, 2, rows), complex)
    unit = np.tile(np.eye(rows, dtype=complex), (T, 1)).reshape(lattice.half_volume, 3, rows)
    for parity in (EVEN, ODD):
        matrices[:, parity, :, 1 - parity] = -hop.apply_to(parity, unit).reshape(T, rows, rows)
        matrices[:, parity, :, parity] = 6 * np.eye(rows)
    return matrices.reshape(T, 2 * rows, 2 * rows)


def columns(modes):
    return modes.vectors.reshape(len(modes.vectors), -1, modes.vectors.shape[-1]).astype(complex)


def check(modes, links, lattice, limit):
    """Orthonormal eigenvectors of the dense matrices, with their lowest eigenvalues."""
    matrices, V = dense(links, lattice), columns(modes)
    k = V.shape[2]
    assert np.abs(V.conj().swapaxes(1, 2) @ V - np.eye(k)).max() < limit
    missed = np.linalg.norm(matrices @ V - V * modes.values[:, None], axis=1)
    assert missed.max() < limit
    np.testing.assert_allclose(modes.residuals, missed, atol=limit)
    np.testing.assert_allclose(modes.values, np.linalg.eigvalsh(matrices)[:, :k], atol=limit)


@pytest.mark.parametrize("k", [20, 100, 192])
def test_all_that_a_rough_slice_has(k):
    """4^3: singular values of the hop give any number of the 192 modes, those above 6 too."""
    links = rough(ROUGH)
    check(solver(k).solve(links, ROUGH), links, ROUGH, 1e-12)


def test_a_single_mode():
    links = rough(ROUGH)
    check(solver(1).solve(links, ROUGH), links, ROUGH, 1e-9)


@pytest.mark.parametrize("block", [pytest.param(1, marks=pytest.mark.slow), 8])
def test_lanczos_on_rough_slices(block):
    links = rough(WIDE)
    told = []
    modes = solver(24, block).solve(links, WIDE, progress=lambda *done: told.append(done))
    check(modes, links, WIDE, 1e-9)
    np.testing.assert_allclose(modes.values, np.linalg.eigvalsh(dense(links, WIDE))[:, :24], rtol=1e-10)
    assert told and told[-1][1] == 4 * 24


def test_single_precision():
    links = rough(WIDE)
    modes = solver(16, tolerance=1e-5, dtype=np.complex64).solve(links, WIDE)
    assert modes.vectors.dtype == np.complex64
    check(modes, links, WIDE, 1e-4)


def test_neighbours_in_single_precision_are_kept_apart():
    """Levels of a smooth field, split by about 0.002."""
    near_one = random_su3(np.random.default_rng(5), 4, 2, WIDE.half_volume, size=0.03)
    modes = solver(21, tolerance=1e-5, dtype=np.complex64).solve(near_one, WIDE)
    assert modes.residuals.max() < 2e-4
    check(modes, near_one, WIDE, 2e-4)


@pytest.mark.parametrize("extents", [(4, 4, 4, 2), (6, 6, 6, 2), (8, 6, 6, 2)], ids=str)
def test_free_field_with_its_multiplicities(extents):
    """6 - 2 sum_j cos p_j, three colours of each."""
    lattice = Lattice(extents)
    found = solver(21, 4).solve(unit_links(lattice, np), lattice).values
    momenta = np.meshgrid(*(2 * np.pi * np.arange(L) / L for L in extents[:3]))
    exact = np.sort(np.repeat(6 - 2 * sum(np.cos(p) for p in momenta), 3))[:21]
    np.testing.assert_allclose(found, np.stack([exact] * 2), atol=1e-10)


def test_reference_values(reference_data, expected):
    entry = expected["laplace:weak_field_t0-3"]
    gauge = read_gauge(reference_data / entry["files"][0])
    rho, steps = entry["values"]["stout"]
    links = stout_links(gauge.links.astype(complex), gauge.lattice, rho, int(steps), SPATIAL_DIRECTIONS)
    wanted = np.array(entry["values"]["eig"])
    modes = LaplaceSolver(wanted.shape[1]).solve(links, gauge.lattice, entry["values"]["t"])
    np.testing.assert_allclose(modes.values, wanted, rtol=entry["rtol"])
    assert modes.residuals.max() < 1e-10


def test_projector_is_gauge_covariant():
    """V V^H of transformed links is g V V^H g^dag."""
    rng, lattice = np.random.default_rng(17), WIDE
    links, g = rough(lattice), random_su3(rng, 2, lattice.half_volume, size=0.4)
    turned, made = rotated(links, g, lattice), solver(10)
    V = made.solve(links, lattice).vectors
    by_slice = g.reshape(2, lattice.time_extent, -1, 3, 3).swapaxes(0, 1)
    V = (by_slice @ V).reshape(lattice.time_extent, -1, 10)
    W = columns(made.solve(turned, lattice))
    overlaps = V.conj().swapaxes(1, 2) @ W
    assert np.abs(overlaps @ overlaps.conj().swapaxes(1, 2) - np.eye(10)).max() < 1e-10


def test_vectors_do_not_depend_on_how_they_are_found():
    """Lanczos in other blocks, other slices beside them, and a dense diagonalisation: the same phases."""
    links = rough(WIDE)
    vectors = solver(12, 8, 1e-12).solve(links, WIDE).vectors
    for other in (
        solver(12, 5, 1e-12).solve(links, WIDE).vectors,
        np.concatenate([solver(12, 8, 1e-12).solve(links, WIDE, t).vectors for t in ([0, 1], [2, 3])]),
        solver(200).solve(links, WIDE).vectors[..., :12],
    ):
        assert np.abs(other - vectors).max() < 1e-8


def test_small_lattices_take_one_thread(monkeypatch):
    """The numbers are those of all threads, of which there are as many afterwards."""
    links, every, threads = rough(WIDE), numba.get_num_threads(), []

    def solve():
        return solver(4).solve(links, WIDE, progress=lambda *_: threads.append(numba.get_num_threads()))

    alone = solve().vectors
    assert set(threads) == {1} and numba.get_num_threads() == every
    monkeypatch.setattr("stages.lqcd.eigen.batched_lanczos.ALONE", 0)
    assert np.array_equal(solve().vectors, alone) and threads[-1] == every


@pytest.mark.gpu
def test_slices_on_a_gpu_are_those_of_a_cpu():
    cupy = pytest.importorskip("cupy")
    links = rough(WIDE)
    wanted = solver(12, 8, 1e-12).solve(links, WIDE)
    for times in ([0, 1], [2, 3], [0, 1, 2, 3]):
        found = solver(12, 8, 1e-12).solve(cupy.asarray(links), WIDE, times)
        np.testing.assert_allclose(found.values, wanted.values[times], rtol=1e-10)
        assert np.abs(found.vectors.get() - wanted.vectors[times]).max() < 1e-8


def test_bases_of_degenerate_subspaces_are_reproducible():
    """Free field, 3 and 18 vectors of one eigenvalue."""
    lattice = Lattice((6, 6, 6, 2))
    vectors = solver(21, 8, 1e-12).solve(unit_links(lattice, np), lattice).vectors
    other = solver(21, 3, 1e-12).solve(unit_links(lattice, np), lattice).vectors
    assert np.abs(other - vectors).max() < 1e-8


def test_bases_of_degenerate_subspaces_in_single_precision():
    """Dense diagonalisations, whatever tolerance is asked for: in the convention to rounding."""
    lattice = Lattice((4, 4, 4, 2))
    rotation = random_su3(np.random.default_rng(5), 2, lattice.half_volume, size=0.4)
    links = rotated(unit_links(lattice, np), rotation, lattice)
    double = solver(66).solve(links, lattice).vectors  # 3, 18 and 45 of one value
    single = solver(66, dtype=np.complex64).solve(links, lattice).vectors
    assert np.abs(single - double).max() < 1e-3


def test_residuals_notice_what_is_wrong():
    links = rough(ROUGH)
    modes = solver(6).solve(links, ROUGH)
    spoiled = modes.vectors.copy()
    spoiled[2, ODD, ..., 3] *= 1.1
    found = residuals(SpatialHop(links, ROUGH), spoiled, modes.values)
    assert found[2, 3] > 0.1 and np.delete(found.ravel(), 2 * 6 + 3).max() < 1e-9


@pytest.mark.parametrize(
    ("k", "times", "message"),
    [
        (193, None, "193 eigenvectors are wanted, but .* has 192: ask for 1 to 192"),
        (0, None, "number of eigenvectors must be a whole number of at least 1, got 0"),
        (4, [1, 2], r"begin at an even one, got \[1, 2\]: take an even chunk"),
        (4, [0, 2], r"got \[0, 2\]"),
        (4, [0], r"got \[0\]"),
        (4, [], r"got \[\]"),
        (4, [2, 3, 4, 5], r"\[2, 3, 4, 5\] are not among 0 to 3 of 4x4x4x4"),
    ],
)
def test_refusals(k, times, message):
    with pytest.raises(InputError, match=message):
        solver(k).solve(rough(ROUGH), ROUGH, times)


def test_links_of_another_lattice():
    with pytest.raises(InputError, match=r"links on 4x4x4x4 have shape .* got \(4, 2, 127, 3, 3\)"):
        solver(4).solve(rough(ROUGH)[:, :, 1:], ROUGH, [0, 1])


def test_too_many_for_large_slices():
    lattice = Lattice((14, 14, 8, 2))
    for block, most in ((8, 857), (32, 785)):
        with pytest.raises(InputError, match=rf"in blocks of {block} finds up to {most}, and .* up to 4096"):
            solver(900, block).solve(unit_links(lattice, np), lattice)
