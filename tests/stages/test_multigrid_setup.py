"""The stored multigrid setup: what is in it, that it serves as the one just made, and no other operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline import At
from stages.base.errors import InputError
from stages.ensemble.configuration import GaugeLinks, heatbath_configuration
from stages.ensemble.wilson_operator import wilson_operator
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.multigrid.levels import check_levels, default_levels, multigrid_of
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.solution import NotConverged
from stages.mesons.multigrid_setup import (
    MultigridSetup,
    multigrid_hierarchy,
    multigrid_setup,
    unpacked,
)
from stages.mesons.propagator import propagator
from stages.mesons.sources import point_sources

pytestmark = pytest.mark.usefixtures("reference_kernels")

AT = {"config": "coarse.1"}
REST = {"refinements": 1, "smoothing": 4, "steps": 4, "tolerance": 0.1}
LEVELS = [
    {"aggregate": [2, 2, 2, 2], "vectors": 4, **REST},
    {"aggregate": [1, 2, 1, 1], "vectors": 3, **REST},
]
SETUP: dict[str, Any] = {"levels": LEVELS, "seed": 606}
QUARK: dict[str, Any] = {"boundary": "antiperiodic", "kappa": 0.125, "csw": 1.1}


@pytest.fixture(scope="module")
def gauge() -> GaugeLinks:
    return heatbath_configuration(
        at=At(**AT), extents=(4, 4, 4, 4), beta=6.0, seed=1408, sweeps=4, overrelaxation=1
    )


@pytest.fixture(scope="module")
def operator(gauge: GaugeLinks) -> WilsonOperator:
    """On the reference kernels, which need no compilation."""
    made = wilson_operator(gauge, at=At(**AT), **QUARK)
    return replace(made, dslash=made.dslash, _precisions={})


@pytest.fixture(scope="module")
def made(operator: WilsonOperator) -> tuple[At, MultigridSetup]:
    at = At(**AT)
    return at, multigrid_setup(operator, at=at, **SETUP)


@pytest.fixture(scope="module")
def hierarchy(operator: WilsonOperator, made: tuple[At, MultigridSetup]) -> Hierarchy:
    return multigrid_hierarchy(operator, made[1], at=At(**AT), **SETUP)


def test_what_the_chunk_says_of_its_making(made: tuple[At, MultigridSetup]) -> None:
    at, setup = made
    said = at.statistics
    assert 0 < said["rate"] < 0.6 and said["setup_seconds"] > 0 and not said["rebuilt"]
    assert said["attempts"] == [{"seed": 606, "rate": said["rate"]}]
    assert said["grids"] == ["2x2x2x2", "2x1x2x2"]
    assert all(array.dtype == np.complex64 for array in (setup.vectors, setup.diagonal, setup.links))
    assert len(setup.vectors) == 256 * 12 * 4 + 16 * 8 * 3
    assert setup.shapes.shape[:2] == (2, 3)


def test_it_serves_as_the_one_just_made(operator, made, hierarchy):
    fresh, stored = multigrid_of(**SETUP).setup(operator), unpacked(made[1])[0]
    for name, array in fresh.arrays().items():
        np.testing.assert_allclose(stored[name], array, rtol=0, atol=1e-3 * np.abs(array).max())
    assert hierarchy.rate == pytest.approx(fresh.rate, rel=1e-3)
    rng = np.random.default_rng(99)
    x = (rng.normal(size=(*hierarchy.system.shape, 2)) + 0j).astype(np.complex64)
    np.testing.assert_allclose(hierarchy.apply(x), fresh.apply(x), rtol=0, atol=1e-3 * np.abs(x).max())


def test_a_propagator_by_multigrid(gauge: GaugeLinks, operator: WilsonOperator, hierarchy: Hierarchy) -> None:
    """Equal to that of BiCGstab to the tolerance, in far fewer iterations."""
    where = {**AT, "source": "x1y0z2t3"}
    sources = point_sources(gauge, at=At(**where))
    ats = [At(**where), At(**where)]
    by_multigrid = propagator(
        operator, sources, hierarchy, at=ats[0], solve=Solve("multigrid", 1e-10, block=12)
    )
    other = propagator(operator, sources, at=ats[1], solve=Solve("bicgstab", 1e-10, block=12))
    assert np.abs(by_multigrid.propagator - other.propagator).max() < 1e-8
    assert by_multigrid.full_residual.max() < 2e-10 and by_multigrid.residual.max() <= 1e-10
    assert max(ats[0].statistics["iterations"]) < 0.7 * max(ats[1].statistics["iterations"])
    with pytest.raises(InputError, match="multigrid needs a hierarchy"):
        propagator(operator, sources, at=At(**where), solve=Solve("multigrid", 1e-10))


def test_a_source_that_is_not_finite_ends_its_chunk_by_its_number(gauge, operator):
    """Among all columns of the chunk, whatever block it is in: here the second of three."""
    where = {**AT, "source": "x1y0z2t3"}
    sources = point_sources(gauge, at=At(**where))
    sources.fields[0, 5, 3, 0, 7] = np.inf
    with pytest.raises(NotConverged, match=r"^right-hand side 7 is not finite .*, the other 3 reached "):
        propagator(operator, sources, at=At(**where), solve=Solve("bicgstab", 1e-8, block=4))


@pytest.mark.parametrize(
    "change", [{"kappa": 0.124}, {"csw": 1.0}, {"boundary": "periodic"}], ids=["kappa", "csw", "boundary"]
)
def test_the_setup_of_another_operator_is_refused(gauge, made, change):
    other = wilson_operator(gauge, at=At(**AT), **{**QUARK, **change})
    with pytest.raises(InputError, match="another operator or gauge field"):
        multigrid_hierarchy(other, made[1], at=At(**AT), **SETUP)


def test_the_setup_of_other_levels_is_refused(operator, made):
    levels = [{**LEVELS[0], "aggregate": [4, 2, 2, 2]}, LEVELS[1]]
    with pytest.raises(InputError, match="not those of these levels"):
        multigrid_hierarchy(operator, made[1], at=At(**AT), levels=levels, seed=606)


def test_a_poor_setup_is_made_again_and_recorded(operator, monkeypatch):
    from stages.lqcd.multigrid import setup as module

    monkeypatch.setattr(module, "measured_rate", lambda _, seed, *begun: {606: 0.9, 607: 0.3}[seed])
    at = At(**AT)
    setup = multigrid_setup(operator, at=at, **SETUP)
    assert at.statistics["rebuilt"]
    assert at.statistics["attempts"] == [{"seed": 606, "rate": 0.9}, {"seed": 607, "rate": 0.3}]
    assert unpacked(setup)[1]["attempts"] == [[606, 0.9], [607, 0.3]]


@pytest.mark.parametrize(
    ("extents", "aggregates"),
    [
        ((4, 4, 4, 4), [[2, 2, 2, 2]]),
        ((8, 8, 8, 16), [[4, 4, 4, 4]]),
        ((16, 16, 16, 16), [[4, 4, 4, 4], [2, 2, 2, 2]]),
        ((32, 32, 32, 64), [[4, 4, 4, 4], [2, 2, 2, 2], [2, 2, 2, 2]]),
        ((6, 6, 6, 12), [[2, 2, 2, 4]]),
    ],
)
def test_default_levels_fit(extents: tuple[int, int, int, int], aggregates: list[list[int]]) -> None:
    found = [{**REST, **level} for level in default_levels(Lattice(extents))]
    assert [level["aggregate"] for level in found] == aggregates
    check_levels(found, Lattice(extents))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"aggregate": [3, 2, 2, 2]}, "aggregates of 3 sites do not divide the 4 sites of the 4x4x4x4 grid"),
        ({"vectors": 97}, "97 near-null vectors, but an aggregate of 16 sites .* has 96 components"),
        ({"aggregate": [2, 2, 2]}, "four extents"),
    ],
)
def test_levels_that_do_not_fit(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_levels([{**LEVELS[0], **change}], Lattice((4, 4, 4, 4)))
