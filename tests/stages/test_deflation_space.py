"""Stages of low modes: what is stored, what reading it back checks, and that no other operator gets it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import At, FolderCheckpoint
from pipeline.store import checkpoint
from stages.base.errors import InputError
from stages.ensemble import configuration
from stages.ensemble import staggered_operator as operators
from stages.loops.deflation_space import DeflationSpace, EigenSearch, deflation, deflation_space
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.stored_vectors import from_store
from stages.lqcd.lattice.geometry import EVEN
from support.matrices import matrix_of

EXTENTS = (4, 4, 4, 4)
AT = {"config": "modes.2"}
HISQ = {"boundary": "antiperiodic", "naik_epsilon": 0.0}
VECTORS = 8
ROUNDING = {"double": 1e-10, "single": 1e-6, "half": 3e-4}
"""Residuals of stored vectors over the largest eigenvalue, at most."""


@pytest.fixture(scope="module")
def gauge() -> configuration.GaugeLinks:
    return configuration.heatbath_configuration(
        at=At(**AT), extents=EXTENTS, beta=6.0, seed=408, sweeps=6, overrelaxation=2
    )


@pytest.fixture(scope="module")
def dslash(gauge: configuration.GaugeLinks) -> StaggeredDslash:
    return operators.hisq_operator(gauge, at=At(**AT), **HISQ)


@pytest.fixture(scope="module")
def dense(dslash: StaggeredDslash) -> np.ndarray:
    """B as a matrix."""
    B = SquaredDslash(dslash, EVEN)
    return matrix_of(B.apply, B.shape)


def space_of(dslash: StaggeredDslash, vectors: int = VECTORS, **options: Any) -> DeflationSpace:
    return deflation_space(dslash, at=At(**AT), vectors=vectors, tolerance=1e-11, **options)


@pytest.fixture(scope="module")
def spaces(dslash: StaggeredDslash) -> dict[str, DeflationSpace]:
    return {precision: space_of(dslash, precision=precision) for precision in ROUNDING}


@pytest.mark.parametrize("precision", ROUNDING)
def test_eigenvalues_and_the_matrices_of_the_rounded_vectors(spaces, dense, precision):
    space, exact = spaces[precision], np.linalg.eigvalsh(dense)
    np.testing.assert_allclose(space.eigenvalue, exact[:VECTORS], rtol=1e-10)
    V = from_store(space.vectors, space.scale, np).reshape(len(dense), VECTORS).astype(complex)
    np.testing.assert_allclose(space.gram, V.conj().T @ V, rtol=0, atol=1e-14)
    np.testing.assert_allclose(space.projected, V.conj().T @ dense @ V, rtol=0, atol=1e-13 * exact[-1])
    rho = np.einsum("xn,xn->n", V.conj(), dense @ V) / np.einsum("xn,xn->n", V.conj(), V)
    residual = np.linalg.norm(dense @ V - V * rho, axis=0) / np.linalg.norm(V, axis=0)
    np.testing.assert_allclose(space.residual, residual, rtol=1e-6, atol=1e-13 * exact[-1])
    assert space.residual.max() < ROUNDING[precision] * exact[-1]
    if precision != "double":
        assert space.residual.min() > 1e-4 * ROUNDING[precision] * exact[-1]


@pytest.mark.parametrize(
    ("precision", "dtype", "share"), [("double", "f8", 1), ("single", "f4", 1 / 2), ("half", "u2", 1 / 3)]
)
def test_what_is_stored(spaces: dict[str, DeflationSpace], precision: str, dtype: str, share: float) -> None:
    """16 bits and the scales of a site take a third of double."""
    space = spaces[precision]
    assert space.vectors.shape == (4, 32, 3, VECTORS, 2) and space.vectors.dtype == dtype
    assert space.scale.shape == (4, 32, VECTORS if precision == "half" else 0)
    assert space.vectors.nbytes + space.scale.nbytes == pytest.approx(share * spaces["double"].vectors.nbytes)


def test_vectors_of_sixteen_bits(spaces, dslash, dense):
    """They keep every number to its scale, and are smoothed."""
    exact, rounded = (from_store(spaces[p].vectors, spaces[p].scale, np) for p in ("double", "half"))
    assert (exact.dtype, rounded.dtype) == (np.complex128, np.complex64)
    largest = np.maximum(np.abs(exact.real), np.abs(exact.imag)).max(axis=1, keepdims=True)
    assert (np.abs((exact - rounded).real) < 1.7e-5 * largest).all()

    held = deflation(dslash, spaces["half"], at=At(**AT)).even
    ritz = held.vectors.reshape(len(dense), VECTORS) @ held.rotation
    residual = np.linalg.norm(dense @ ritz - ritz * held.eigenvalues, axis=0)
    assert np.median(residual / spaces["half"].residual) < 0.2
    np.testing.assert_allclose(held.eigenvalues, spaces["double"].eigenvalue, rtol=1e-6)


def test_what_the_chunk_says_of_its_making(dslash: StaggeredDslash) -> None:
    at = At(**AT)
    space = deflation_space(dslash, at=at, vectors=3, tolerance=1e-10, precision="single")
    said = at.statistics
    assert said["residual_before_rounding"] < 1e-8 < said["residual_max"] == space.residual.max()
    assert said["eigenvalue_range"] == [space.eigenvalue[0], space.eigenvalue[-1]]
    assert said["matvecs"] > 0 and said["restarts"] >= 1 and said["eigensolve_seconds"] > 0
    assert said["convergence"][-1][1] == 3
    assert at.reports[-1]["done"] == at.reports[-1]["total"] == 3
    assert {"restarts", "residual"} <= set(at.reports[-1])


@pytest.mark.parametrize("precision", ["single", "half"])
def test_rounded_vectors_of_a_loose_tolerance_are_searched_in_single_precision(
    dslash: StaggeredDslash,
    spaces: dict[str, DeflationSpace],
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their Ritz values, taken in double precision, are right to the square of the residuals."""
    solve, searched = BlockLanczos.solve, []

    def watched(self: BlockLanczos, A: SquaredDslash, **options: Any) -> Any:
        searched.append(A.dtype)
        return solve(self, A, **options)

    monkeypatch.setattr(BlockLanczos, "solve", watched)
    space = deflation_space(dslash, at=At(**AT), vectors=VECTORS, tolerance=1e-4, precision=precision)
    deflation_space(dslash, at=At(**AT), vectors=2, tolerance=1e-5, precision=precision)
    deflation_space(dslash, at=At(**AT), vectors=2, tolerance=1e-4)
    assert searched == [np.complex64, np.complex128, np.complex128]
    ritz = np.linalg.eigvalsh(np.linalg.solve(space.gram, space.projected))
    lowest = spaces["double"].eigenvalue
    assert (abs(np.sort(ritz) - lowest) <= 1e-6 * lowest[-1] + space.residual.max() ** 2 / lowest[0]).all()


def test_a_part_of_the_space_serves_and_no_more_than_there_is(spaces, dslash):
    whole, part = (deflation(dslash, spaces["single"], at=At(**AT), vectors=k).even for k in (None, 7))
    assert len(part) == 7
    np.testing.assert_array_equal(part.vectors, whole.vectors[..., :7])
    np.testing.assert_array_equal(part.gram, whole.gram[:7, :7])

    with pytest.raises(InputError, match="9 deflation vectors, but the deflation space has 8: take 1 to 8"):
        deflation(dslash, spaces["double"], at=At(**AT), vectors=9)
    with pytest.raises(InputError, match="385 deflation vectors, but the even sites of the lattice have 384"):
        space_of(dslash, 385)
    with pytest.raises(InputError, match="precision must be one of double, single, half, got 'quarter'"):
        space_of(dslash, precision="quarter")


@pytest.mark.parametrize("change", ["gauge field", "boundary", "naik_epsilon"])
@pytest.mark.parametrize("precision", ["double", "half"])
def test_a_space_of_another_operator_is_refused(spaces, gauge, precision, change):
    if change == "gauge field":
        at = At(config="modes.3")
        field = configuration.heatbath_configuration(
            at=at, extents=EXTENTS, beta=6.0, seed=408, sweeps=6, overrelaxation=2
        )
        other = operators.hisq_operator(field, at=at, **HISQ)
    elif change == "boundary":
        other = operators.hisq_operator(gauge, at=At(**AT), **{**HISQ, "boundary": "periodic"})
    else:
        other = operators.hisq_operator(gauge, at=At(**AT), **{**HISQ, "naik_epsilon": -0.04})
    with pytest.raises(InputError, match=r"not of this operator.*gauge field, boundary.*naik_epsilon"):
        deflation(other, spaces[precision], at=At(**AT))


def test_a_space_of_another_lattice_is_refused(spaces: dict[str, DeflationSpace]) -> None:
    at = At(config="a")
    field = configuration.heatbath_configuration(
        at=at, extents=(4, 4, 4, 6), beta=6.0, seed=1408, sweeps=1, overrelaxation=0
    )
    with pytest.raises(InputError, match=r"has 4 time slices of 32 even sites, the lattice 4x4x4x6 6 of 32"):
        deflation(operators.hisq_operator(field, at=at, **HISQ), spaces["double"], at=at)


class Killed(BaseException):
    """What stands for the end of the process."""


def interrupted(dslash: StaggeredDslash, folder: Path, restarts: int, **options: Any) -> None:
    """Find the space until so many restarts are done, with a checkpoint after each."""

    def listener(report: dict[str, Any]) -> None:
        if report["restarts"] > restarts:
            raise Killed

    with closing(FolderCheckpoint(folder)) as kept, pytest.raises(Killed):
        at = At(**AT, listener=listener, checkpoint=kept)
        search = EigenSearch(degree=4, subspace=20, **options)
        deflation_space(dslash, at=at, vectors=VECTORS, tolerance=1e-9, search=search)


def resumed(dslash: StaggeredDslash, folder: Path, **options: Any) -> tuple[At, DeflationSpace]:
    with closing(FolderCheckpoint(folder)) as kept:
        at = At(**AT, checkpoint=kept)
        search = EigenSearch(degree=4, subspace=20, **options)
        return at, deflation_space(dslash, at=at, vectors=VECTORS, tolerance=1e-9, search=search)


def test_a_killed_eigensolve_goes_on_and_finds_the_same(dslash, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FIRST_SAVE", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", np.inf)
    at, whole = resumed(dslash, tmp_path / "none", block=3)
    assert at.statistics["restarts"] > 3
    interrupted(dslash, tmp_path / "kept", 2, block=3)
    at, again = resumed(dslash, tmp_path / "kept", block=3)
    assert at.reports[0]["restarts"] > 2
    np.testing.assert_array_equal(again.eigenvalue, whole.eigenvalue)
    np.testing.assert_array_equal(again.vectors, whole.vectors)


def test_a_checkpoint_of_another_block_is_none(dslash, tmp_path, monkeypatch):
    """The block is in no key, so that the chunk is the same."""
    monkeypatch.setattr(checkpoint, "FIRST_SAVE", 0.0)
    interrupted(dslash, tmp_path, 1, block=3)
    at, _ = resumed(dslash, tmp_path, block=1)
    assert at.reports[0]["restarts"] <= 1
