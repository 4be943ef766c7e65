"""Solves, sources and contractions that go wrong without a word, found by the repetition on another path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from settings import grouped

from pipeline import At
from stages.base.errors import DisagreementError, WrongResultError
from stages.ensemble import configuration
from stages.ensemble.staggered_operator import hisq_operator, naive_operator
from stages.ensemble.wilson_operator import wilson_operator
from stages.loops.current_loops import Masses, current_loops, split_even_loops
from stages.lqcd.kernels.dispatch import around_kernels, kernels_of
from stages.lqcd.lattice.geometry import ODD
from stages.lqcd.solvers.solution import NotConverged
from stages.mesons.propagator import propagator, staggered_propagator
from stages.mesons.sources import point_sources, staggered_sources

pytestmark = pytest.mark.usefixtures("reference_kernels")
EXTENTS = (4, 2, 2, 4)
LOOPS = {"solver": "block_cgrq", "precision": "double", "block": 8, "tolerance": 1e-9}
NOISE = {"seed": 2718, "noise": "z2"}


@pytest.fixture(scope="module")
def gauge() -> configuration.GaugeLinks:
    chain = {"extents": EXTENTS, "beta": 6.0, "seed": 99, "sweeps": 4, "overrelaxation": 2}
    return configuration.heatbath_configuration(at=At(config="a"), **chain)


@dataclass
class Failing:
    """A kernel whose call number `call` of those named so is wrong: one number of its output."""

    name: str
    call: int = 0
    place: int = 5
    calls: int = field(default=0, init=False)

    def __call__(self, implementation: Callable[..., Any]) -> Callable[..., Any]:
        if implementation.__name__ != self.name:
            return implementation

        def failing(*arguments: Any, **options: Any) -> Any:
            result = implementation(*arguments, **options)
            if self.calls == self.call:
                np.asarray(result).reshape(-1)[self.place] += 1e-3
            self.calls += 1
            return result

        return failing


@contextmanager
def wrong(name: str, call: int = 0, place: int = 5) -> Iterator[Failing]:
    failing = Failing(name, call, place)
    with around_kernels(failing):
        yield failing


class Inputs:
    """A chunk's inputs made again, as the engine does it."""

    def __init__(self, **make: Callable[[], Any]) -> None:
        self._make = make

    def __call__(self, name: str) -> Any:
        return self._make[name]()


def at_with(**make: Callable[[], Any]) -> At:
    return At(config="a", noise=(0, 1), again=Inputs(**make))


def dslash_of(gauge: configuration.GaugeLinks, **options: Any) -> Any:
    at = At(config="a")
    return hisq_operator(gauge, at=at, boundary="antiperiodic", naik_epsilon=0.0, **options)


def loops(gauge: configuration.GaugeLinks, dslash: Any = None, **options: Any) -> At:
    at = at_with(dslash=lambda: dslash_of(gauge))
    measured = dslash or dslash_of(gauge)
    current_loops(measured, at=at, mass=0.1, **grouped(**{**LOOPS, **NOISE, **options}))
    return at


def test_loops_that_are_right_agree_with_the_second_path(gauge) -> None:
    at = loops(gauge, dilution={"displacement": 2})
    assert at.statistics["repeated"] == (
        "A x and D x of 32 solutions, a contraction, the noise, by the reference kernels of the host"
    )

    at = at_with(dslash=lambda: dslash_of(gauge))
    masses = Masses(0.1, 0.3)
    split_even_loops(dslash_of(gauge), at=at, masses=masses, **grouped(**LOOPS, **NOISE))
    assert "of 8 solutions" in at.statistics["repeated"]


@pytest.mark.slow
def test_sloppy_and_mixed_solves_agree_with_the_second_path(gauge):
    at = loops(gauge, tolerance=1e-3, precision="double-single", solver="batched_cg")
    assert "repeated" in at.statistics


@pytest.mark.slow
def test_compiled_kernels_agree_with_the_second_path(gauge):
    with kernels_of("cpu"):
        assert "repeated" in loops(gauge).statistics


@pytest.mark.parametrize("links", ["fat", pytest.param("long", marks=pytest.mark.slow)])
def test_links_of_the_operator_that_were_wrong_from_the_start_are_found(gauge, links):
    """No checksum shows it: the solver meets its tolerance, with another operator."""
    dslash = dslash_of(gauge)
    getattr(dslash.links, links)[2, 1, 17, 0, 1] += 1e-5
    dslash = type(dslash)(dslash.links)
    with pytest.raises(WrongResultError, match=r"solutions for m = .* do not hold by other kernels"):
        loops(gauge, dslash)


@pytest.mark.slow
def test_a_contraction_that_is_wrong_is_found_where_its_column_is_looked_at(gauge):
    """A block of each parity, two columns each, of which one of the four is looked at."""
    found = 0
    for call in range(2):
        for column in range(2):
            with wrong("one_link_current", call, place=16 * column + 5):
                try:
                    loops(gauge)
                except WrongResultError as error:
                    assert "a current is another one by other kernels" in str(error)
                    found += 1
    assert found == 1


def measured(gauge: configuration.GaugeLinks) -> np.ndarray:
    at = at_with(dslash=lambda: dslash_of(gauge))
    loops = current_loops(dslash_of(gauge), at=at, mass=0.1, **grouped(**LOOPS, **NOISE))
    return np.concatenate([loops.current.ravel(), loops.condensate.ravel()])


@pytest.mark.parametrize("calls", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_a_dslash_that_is_wrong_once_is_noticed_or_has_no_effect(gauge, calls):
    """In a chosen chunk, whichever call: the solver mends it, misses its residual, or it is caught."""
    with wrong("hisq_dslash", call=-1) as counting:
        right = measured(gauge)
    rng, noticed = np.random.default_rng(calls), 0
    for call in rng.choice(counting.calls, calls, replace=False):
        with wrong("hisq_dslash", int(call)):
            try:
                assert np.abs(measured(gauge) - right).max() < 1e-6, call
            except (WrongResultError, NotConverged):
                noticed += 1
    assert noticed < calls or calls < 10


def test_noise_that_is_drawn_wrongly_is_found(gauge):
    at = at_with(dslash=lambda: dslash_of(gauge))
    original = current_loops.__globals__["sources"]
    drawn = []

    def spoilt(*arguments: Any) -> Any:
        fields = original(*arguments)
        if not drawn:
            fields[1][3, 1, 0] *= -1
        drawn.append(1)
        return fields

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(current_loops.__globals__, "sources", spoilt)
        with pytest.raises(WrongResultError, match="noise vectors are others when they are made again"):
            current_loops(dslash_of(gauge), at=at, mass=0.1, **grouped(**LOOPS, **NOISE))


def test_noise_that_changes_in_memory_is_found_in_every_chunk(gauge):
    original = current_loops.__globals__["stochastic_loops"]

    def spoiling(trace: Any, vectors: Any, *others: Any) -> Any:
        result = original(trace, vectors, *others)
        vectors[0].view(np.uint8).reshape(-1)[1000] ^= 1
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(current_loops.__globals__, "stochastic_loops", spoiling)
        with pytest.raises(DisagreementError, match="noise vectors changed in memory"):
            current_loops(
                dslash_of(gauge), at=At(config="a", noise=(0,)), mass=0.1, **grouped(**LOOPS, **NOISE)
            )


@pytest.mark.parametrize("links", ["thin", "fat"])
def test_links_of_a_current_that_change_in_memory_are_found_in_every_chunk(gauge, links):
    original = current_loops.__globals__["stochastic_loops"]

    def spoiling(trace: Any, *others: Any) -> Any:
        result = original(trace, *others)
        trace.current_links.of(ODD).view(np.uint8).reshape(-1)[1000] ^= 1
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(current_loops.__globals__, "stochastic_loops", spoiling)
        with pytest.raises(DisagreementError, match="links of the current changed in memory"):
            at, options = At(config="a", noise=(0,)), grouped(**LOOPS, **NOISE)
            current_loops(dslash_of(gauge), at=at, mass=0.1, current_links=links, **options)


def sources_at(**options: Any) -> At:
    return At(config="a", source=("x0y0z0t0", "x1y1z0t1"), **options)


def solved_mesons(gauge: configuration.GaugeLinks, spoil: Callable[[Any, Any], None]) -> At:
    """Propagators of two sources; `spoil` gets operator and sources before they are used."""

    def operator() -> Any:
        return wilson_operator(gauge, at=At(config="a"), boundary="antiperiodic", kappa=0.11, csw=1.2)

    def made() -> Any:
        return point_sources(gauge, at=sources_at())

    at, M, b = sources_at(again=Inputs(operator=operator, sources=made)), operator(), made()
    spoil(M, b)
    solve = grouped(solver="bicgstab", precision="double", tolerance=1e-9, block=12)
    propagator(M, b, at=at, **solve)
    return at


def test_propagators_that_are_right_agree_with_the_second_path(gauge):
    at = solved_mesons(gauge, lambda M, b: None)
    assert at.statistics["repeated"] == "M x of 24 solutions, by the reference kernels of the host"


def wrong_clover(M: Any, b: Any) -> None:
    M.clover_inverse(0).blocks[5, 1, 2, 3] += 1e-3


def wrong_source(M: Any, b: Any) -> None:
    b.fields[1, 7, 3, 0, 4] = 2**-20


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (wrong_clover, "solutions do not hold by other kernels"),
        (wrong_source, "sources are others when they are made again"),
    ],
)
def test_a_clover_matrix_or_a_source_that_is_wrong_is_found(gauge, spoil, said):
    with pytest.raises(WrongResultError, match=said):
        solved_mesons(gauge, spoil)


@pytest.mark.parametrize("spoilt", [False, True])
def test_staggered_propagators_go_by_the_second_path(gauge, spoilt):
    def operator() -> Any:
        return naive_operator(gauge, at=At(config="a"), boundary="antiperiodic")

    def made() -> Any:
        return staggered_sources(gauge, at=sources_at(), operators=["G5-G5"])

    at, dslash = sources_at(again=Inputs(operator=operator, sources=made)), operator()
    if spoilt:
        dslash.links.fat[0, 0, 0, 0, 0] *= 1 + 1e-6
        dslash = type(dslash)(dslash.links)
    solve = grouped(solver="block_cgrq", precision="double", tolerance=1e-9, block=6)
    if spoilt:
        with pytest.raises(WrongResultError):
            staggered_propagator(dslash, made(), at=at, mass=0.2, **solve)
    else:
        staggered_propagator(dslash, made(), at=at, mass=0.2, **solve)
        assert "M x of 6 solutions" in at.statistics["repeated"]
