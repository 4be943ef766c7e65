"""Projections to SU(3) and U(3)."""

import numpy as np
import pytest

from stages.lqcd.gauge.reunitarise import to_su3, to_u3
from stages.lqcd.kernels.dispatch import as_numpy
from support.matrices import dagger
from support.refusals import refuses


def polar(v):
    left, _, right = np.linalg.svd(v)
    return left @ right


def random_matrices(seed, count):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3, 3)) + 1j * rng.normal(size=(count, 3, 3))


def test_su3_undoes_single_precision(backend, random_su3):
    xp = backend.xp
    exact = random_su3(17, 4099)
    rounded = xp.asarray(exact.astype(np.complex64).astype(complex))
    links, deviation = to_su3(rounded)
    assert 1e-8 < deviation < 2e-7
    assert float(abs(dagger(links) @ links - xp.eye(3)).max()) < 1e-14
    assert float(abs(xp.linalg.det(links) - 1).max()) < 1e-14
    assert float(abs(links - xp.asarray(exact)).max()) < 3e-7


def test_su3_leaves_su3_alone(backend, random_su3):
    exact = random_su3(18, 100)
    links, deviation = to_su3(backend.xp.asarray(exact))
    assert deviation < 1e-14
    assert abs(as_numpy(links) - exact).max() < 1e-14


@pytest.mark.parametrize("damage", ["scaled", "zero", "not a number", "determinant -1"])
def test_no_gauge_field_is_refused(backend, damage, random_su3):
    links = random_su3(19, 12)
    links[7] *= {"scaled": 1.01, "zero": 0, "not a number": np.nan, "determinant -1": -1}[damage]
    said = "zero or not finite, and not in" if damage in ("zero", "not a number") else "away from"
    refuses(rf"{said} SU\(3\)", to_su3, backend.xp.asarray(links))


@pytest.mark.parametrize("row", range(3))
def test_one_damaged_element_is_refused(backend, row, random_su3):
    """The third row is no input of the projection: it must be missed there all the same."""
    links = random_su3(29, 12)
    links[7, row, 0] = np.nan
    refuses(r"zero or not finite, and not in SU\(3\)", to_su3, backend.xp.asarray(links))


def test_u3_is_the_polar_factor(backend):
    v = random_matrices(23, 8197).reshape(-1, 1, 3, 3)
    w, fallbacks = to_u3(backend.xp.asarray(v))
    w = as_numpy(w)
    assert w.shape == v.shape
    assert fallbacks < 10
    assert abs(w - polar(v)).max() < 1e-11
    assert abs(dagger(w) @ w - np.eye(3)).max() < 5e-15


@pytest.mark.parametrize("spread", [0, 1e-15, 1e-9, 1e-4, 0.3])
def test_u3_of_nearly_unitary_matrices(backend, spread, random_su3):
    """Threefold and (along a projector) twofold degenerate singular values: weak spots of the formula."""
    unitary, direction = random_su3(29, 400), random_su3(31, 400)
    projectors = direction[..., :1] @ dagger(direction[..., :1])
    for distortion in (projectors, random_matrices(37, 400)):
        v = 0.37 * unitary @ (np.eye(3) + spread * distortion)
        w, fallbacks = to_u3(backend.xp.asarray(v))
        assert fallbacks == 0
        assert abs(as_numpy(w) - polar(v)).max() < 2e-14


def test_u3_falls_back_where_the_determinant_vanishes(backend, random_su3):
    left, right = random_su3(41, 6), random_su3(43, 6)
    singular_values = np.array([[1, 1, 1], [1, 0.5, 1e-5], [1, 1e-3, 1e-6], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
    v = left * singular_values[:, None, :] @ right
    matrices = backend.xp.asarray(v)
    w, fallbacks = to_u3(matrices, out=matrices)
    w = as_numpy(w)
    assert fallbacks == 5
    assert abs(dagger(w) @ w - np.eye(3)).max() < 5e-15
    assert abs(w - left @ right)[:3].max() < 1e-9


def test_u3_keeps_the_phase_of_the_determinant(backend, random_su3):
    phases = np.exp(2j * np.pi * np.arange(8) / 8)
    v = 1.9 * phases[:, None, None] * random_su3(47, 8)
    w = as_numpy(to_u3(backend.xp.asarray(v)).matrices)
    assert abs(np.linalg.det(w) - phases**3).max() < 1e-14
