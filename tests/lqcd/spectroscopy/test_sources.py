"""Sources: where they are, what a file may hold, and smearing against the Laplacian of the whole lattice."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_lattice import LATTICE

from stages.base.errors import InputError
from stages.lqcd.noise import noise_vectors
from stages.lqcd.spectroscopy import quark_sources as sources
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, gaussian_smeared
from support.refusals import refuses

X, Y, Z, T = LATTICE.extents


def lexicographic(field: NDArray) -> NDArray:
    """A field ``[parity, site, ...]`` as ``[t, z, y, x, ...]``."""
    out = np.empty((LATTICE.volume, *field.shape[2:]), field.dtype)
    for parity in range(2):
        out[LATTICE.lexicographic(parity)] = field[parity]
    return out.reshape(T, Z, Y, X, *field.shape[2:])


@pytest.mark.parametrize("place", [SourcePlace(8), SourcePlace(0, (3, 0, 11)), SourcePlace(4, None, 7)])
def test_labels_name_places(place: SourcePlace) -> None:
    assert SourcePlace.parse(place.label) == place


def test_other_labels_are_refused() -> None:
    refuses("'x0y0z0t8', 't8' or 't8n0', got 'x0t8'", SourcePlace.parse, "x0t8")


def test_a_point_and_a_wall() -> None:
    point = lexicographic(sources.point_source(LATTICE, SourcePlace(5, (3, 1, 0))))
    expected = np.zeros_like(point)
    expected[5, 0, 1, 3] = np.eye(12)
    np.testing.assert_array_equal(point, expected)
    wall = lexicographic(sources.wall_source(LATTICE, SourcePlace(5)))
    expected[5] = np.eye(12)
    np.testing.assert_array_equal(wall, expected)


def test_a_noisy_wall_is_the_noise_of_its_slice_for_each_spin() -> None:
    wall = sources.z2_wall_source(LATTICE, SourcePlace(2, None, 3), "a", 17)
    noise = np.stack([noise_vectors(LATTICE, parity, "a", 17, [3])[..., 0] for parity in (0, 1)])
    slices = wall.reshape(2, T, -1, 4, 3, 4)
    assert not slices[:, [0, 1, 3, 4, 5]].any()
    np.testing.assert_allclose(
        slices[:, 2], np.einsum("psc,ab->psacb", noise.reshape(2, T, -1, 3)[:, 2], np.eye(4)) / np.sqrt(16)
    )
    other = sources.z2_wall_source(LATTICE, SourcePlace(2, None, 4), "a", 17)
    assert np.abs(wall - other).max() > 0


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (SourcePlace(6, (0, 0, 0)), "t = 6 is outside the lattice 4x2x2x6: take 0 to 5"),
        (SourcePlace(0, (0, 2, 0)), "y = 2 is outside the lattice 4x2x2x6: take 0 to 1"),
        (SourcePlace(0), "a point source has a point in space, like 'x0y0z0t8', got 't0'"),
    ],
)
def test_places_off_the_lattice_are_refused(place: SourcePlace, said: str) -> None:
    refuses(said, sources.point_source, LATTICE, place)


def test_a_users_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    field = rng.normal(size=(T, Z, Y, X, 4, 3, 2)) + 1j * rng.normal(size=(T, Z, Y, X, 4, 3, 2))
    field[:3] = 0
    np.save(tmp_path / "a.npy", field)
    source = sources.read_source(tmp_path / "a.npy", LATTICE)
    np.testing.assert_array_equal(lexicographic(source), field.reshape(T, Z, Y, X, 12, 2))
    assert sources.first_time(source, LATTICE) == 3
    np.save(tmp_path / "b.npy", field[..., 0])
    np.testing.assert_array_equal(sources.read_source(tmp_path / "b.npy", LATTICE), source[..., :1])
    np.save(tmp_path / "c.npy", np.asfortranarray(field))
    np.testing.assert_array_equal(sources.read_source(tmp_path / "c.npy", LATTICE), source)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    good = np.ones((T, Z, Y, X, 4, 3), complex)
    for field, said in (
        (good[:-1], r"holds complex128 \(5, .* is complex \(6, 2, 2, 4, 4, 3\)"),
        (good.real, "holds float64"),
        (good * np.nan, "not finite"),
        (np.ones((*good.shape, 0), complex), r"\(6, 2, 2, 4, 4, 3, 0\), but a source on"),
        (np.ones((), complex), r"holds complex128 \(\), but"),
        (np.ones((*good.shape, 1, 1), complex), "with a last axis where"),
        (np.zeros(good.shape, [("re", float), ("im", float)]), r"holds \[\('re', '<f8'\)"),
    ):
        np.save(path, field)
        refuses(said, sources.read_source, path, LATTICE)
    for shape in ((), (3,), (*good.shape, 0), (0, *good.shape[1:]), (*good.shape, 1, 1)):
        np.save(path, np.ones(shape, complex))
        refuses(re.escape(f"holds an array of shape {shape}, but a source has"), sources.source_columns, path)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "pipe"):
        refuses("is no file, but a folder or a pipe", sources.source_columns, other)
    with path.open("wb") as archive:
        np.savez(archive, source=np.ones(3))
    refuses("several NumPy arrays", sources.read_source, path, LATTICE)
    np.save(path, good)
    content = path.read_bytes()
    for damaged in (b"", content.replace(b")", b"(", 1), content.replace(b"(6, 2", b"(6666666666, 2", 1)):
        path.write_bytes(damaged)
        for read in (lambda: sources.read_source(path, LATTICE), lambda: sources.source_columns(path)):
            refuses("cannot be read as a NumPy file", read)
    path.write_text("a source")
    refuses("cannot be read as a NumPy file", sources.read_source, path, LATTICE)
    refuses("zero everywhere", sources.first_time, np.zeros((2, LATTICE.half_volume, 12, 1)), LATTICE)


def laplacian(links: NDArray) -> NDArray:
    """sum_j [U_j(x) d_{x+j,y} + U_j(x-j)^dag d_{x-j,y}] - 6, ``[parity, site, 3, parity, site, 3]``."""
    sites = LATTICE.half_volume
    matrix = np.zeros((2, sites, 3, 2, sites, 3), complex)
    for parity in range(2):
        for site in range(sites):
            matrix[parity, site, :, parity, site] -= 6 * np.eye(3)
            for mu in range(3):
                up, down = (LATTICE.neighbour(parity, mu, hops)[site] for hops in (1, -1))
                matrix[parity, site, :, 1 - parity, up] += links[mu, parity, site]
                matrix[parity, site, :, 1 - parity, down] += links[mu, 1 - parity, down].conj().T
    return matrix


def test_smearing_is_a_polynomial_of_the_laplacian(thin_links: NDArray) -> None:
    point = sources.point_source(LATTICE, SourcePlace(5, (3, 1, 0)))
    found = gaussian_smeared(point, thin_links, LATTICE, 5, 1.4, 6)
    size = 2 * LATTICE.half_volume * 3
    step = np.eye(size) + 1.4**2 / 24 * laplacian(thin_links).reshape(size, size)
    smear = np.linalg.matrix_power(step, 6).reshape(2, LATTICE.half_volume, 3, 2, LATTICE.half_volume, 3)
    spinors = point.reshape(2, LATTICE.half_volume, 4, 3, 12)
    expected = np.einsum("psaqtb,qtrbn->psran", smear, spinors).reshape(point.shape)
    np.testing.assert_allclose(found, expected, atol=1e-14)
    with pytest.raises(InputError, match=r"at least 1 step, got width 1.4, 0 steps"):
        gaussian_smeared(point, thin_links, LATTICE, 5, 1.4, 0)


def test_the_least_steps_damp_the_highest_mode() -> None:
    """Of eigenvalue 12, by 1 - 12 width^2 / (4 n): to -1 at worst."""
    assert 1 - 12 * 2.5**2 / (4 * sources.least_steps(2.5)) == pytest.approx(-1)
