"""Every average takes its errors over bins: two configurations to a bin are as many means of two."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest

import stages
from pipeline import At
from pipeline.declare.node import Stage
from stages.connected.correlator import ConnectedCorrelator, connected_average
from stages.distillation.distilled_two_point import LaphMesons
from stages.distillation.laph_average import laph_average, laph_levels
from stages.hvp.average import PartSource, hvp_average
from stages.loops.correlator import Correlator, bootstrap_average, ensemble_average
from stages.lqcd.spectroscopy.gammas import NAMES
from stages.mesons.two_point import MesonCorrelators, StaggeredCorrelators, meson_average, staggered_average

REST = {"momenta": ((0, 0, 0),)}
LOCAL = {"operators": ("GX-GX", "GY-GY", "GZ-GZ"), "channels": ("rhoi",)}
LEVELS = {"operators": ("Gamma5", "GammaX"), "bases": ((("Gamma5",), ("GammaX",)),), "t0": 0}


def falling(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.exp(-0.4 * np.arange(8)) * (1 + 0.1 * rng.normal(size=(*shape, 8))) + 0j


def laph(rng: np.random.Generator) -> LaphMesons:
    return LaphMesons(falling(rng, 1, 16, 1), falling(rng, 1, 1, 2, 2), np.zeros(1), np.zeros((1, 2)))


def mesons(rng: np.random.Generator) -> MesonCorrelators:
    return MesonCorrelators(falling(rng, 1, len(NAMES), 1), *3 * (np.zeros((1, 12)),))


def staggered(rng: np.random.Generator) -> StaggeredCorrelators:
    return StaggeredCorrelators(falling(rng, 1, 3, 1), *3 * (np.zeros((1, 3)),))


def connected(rng: np.random.Generator) -> ConnectedCorrelator:
    return ConnectedCorrelator(falling(rng, 1).real, *3 * (np.zeros((1, 8)),))


def loops(rng: np.random.Generator) -> Correlator:
    shapes = (3, 8), (3, 4, 8), (3, 4, 8), (3, 2), (3, 2)
    return Correlator(*(rng.normal(size=shape) for shape in shapes))


CASES: dict[Callable[..., Any], tuple[Callable[..., NamedTuple], dict[str, Any]]] = {
    meson_average: (mesons, REST),
    laph_average: (laph, REST),
    laph_levels: (laph, REST | LEVELS),
    staggered_average: (staggered, REST | LOCAL),
    connected_average: (connected, {"quarks": ("light",), "currents": ("local",)}),
    hvp_average: (connected, {"parts": ("light",), "sources": (PartSource(0, 0),)}),
    ensemble_average: (loops, {}),
    bootstrap_average: (loops, {"samples": 20, "seed": 5}),
}


def test_no_average_is_left_out() -> None:
    modules = (
        import_module(each.name)
        for each in pkgutil.walk_packages(stages.__path__, "stages.")
        if ".cuda" not in each.name  # needs CuPy
    )
    declared = {
        each.stage.name
        for module in modules
        for each in vars(module).values()
        if isinstance(getattr(each, "stage", None), Stage)
        and any(parameter.name == "jackknife_bin" for parameter in each.stage.parameters)
    }
    assert declared == {each.stage.name for each in CASES}


@pytest.mark.parametrize("average", CASES, ids=lambda each: each.stage.name)
def test_bins_are_those_of_means(average: Callable[..., Any]) -> None:
    make, options = CASES[average]
    rng = np.random.default_rng(31)
    given = [make(rng) for _ in range(6 if average is hvp_average else 7)]  # the last one is no whole bin
    pairs = [
        type(given[0])(*(np.mean(two, axis=0) for two in zip(*given[n : n + 2], strict=True)))
        for n in (0, 2, 4)
    ]

    def averaged(results: list, **more: int) -> NamedTuple:
        chunks = [(At(config=f"c.{n}", source=("t0",)), each) for n, each in enumerate(results)]
        return average(chunks, at=At(), **options, **more)

    found, expected, alone = averaged(given, jackknife_bin=2), averaged(pairs), averaged(given[:6])
    for name, value, reference in zip(found._fields, found, expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-10, atol=1e-14, err_msg=name)
    errors = [name for name in found._fields if name.endswith("error") and name != "stochastic_error"]
    assert errors and all(
        not np.allclose(getattr(found, name), getattr(alone, name), rtol=1e-3, equal_nan=True)
        for name in errors
    )
