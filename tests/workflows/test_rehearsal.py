"""What `quarkline certify --full` rehearses is what a run asks of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_hisq_mesons import HISQ_MESONS
from tiny_laph import LAPH
from tiny_project import TINY

from pipeline import At
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.smeared_links import SmearedLinks
from stages.ensemble.staggered_operator import free_links, hisq_operator
from stages.loops.rehearsal import LOOPS, block_widths
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.estimators.stochastic import stochastic_loops
from stages.lqcd.estimators.trace import CurrentLinks, LoopTrace
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.kernels import expressions
from stages.lqcd.kernels.dispatch import around_kernels
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise import Dilution, noise_vectors
from stages.lqcd.solvers.named import REGULAR as METHODS
from stages.lqcd.solvers.named import Solve
from stages.mesons.propagator import staggered_propagator
from stages.mesons.sources import staggered_sources
from stages.shared.rehearsal import nodes_of
from workflows.g2_disconnected.build import WORKFLOW as G2
from workflows.g2_disconnected.schema import G2Parameters
from workflows.hisq_mesons.build import WORKFLOW as HISQ_WORKFLOW
from workflows.hisq_mesons.schema import HisqMesonParameters
from workflows.laph_mesons.build import WORKFLOW as LAPH_WORKFLOW
from workflows.laph_mesons.schema import LaphParameters
from workflows.parameter_file import read_parameter_file
from workflows.shared.definition import Project
from workflows.shared.ensemble import Configurations

pytestmark = pytest.mark.usefixtures("reference_kernels")

LATTICE = Lattice((4, 4, 4, 4))
Call = tuple[str, tuple[Any, ...]]
SOLVERS = ["block_cgrq", "batched_cg"]


@contextmanager
def recorded() -> Iterator[set[Call]]:
    """Every call of a kernel in the block, with the shapes and types of its arrays.

    Not of array expressions, which are the same code for all arrays.
    """
    calls: set[Call] = set()

    def noted(kernel: Callable[..., Any]) -> Callable[..., Any]:
        if kernel.__module__ == expressions.__name__:
            return kernel

        @wraps(kernel)
        def call(*arguments: Any, **named: Any) -> Any:
            arrays = [value for value in (*arguments, *named.values()) if isinstance(value, np.ndarray)]
            calls.add((kernel.__name__, tuple((array.shape, array.dtype.str) for array in arrays)))
            return kernel(*arguments, **named)

        return call

    with around_kernels(noted):
        yield calls


def parameters_of(folder: Path, *changes: tuple[str, str]) -> G2Parameters:
    text = TINY
    for before, after in changes:
        assert text.count(before) == 1
        text = text.replace(before, after)
    (folder / "g2.yaml").write_text(text)
    return G2Parameters.read(read_parameter_file(folder / "g2.yaml"))


def project(definition: Any, parameters: Any) -> Project[Any]:
    return Project(definition, parameters, Configurations(("a", "b"), LATTICE))


def widths(parameters: G2Parameters) -> list[int]:
    nodes = project(G2, parameters).workflow.nodes.values()
    return block_widths(nodes_of(list(nodes), *LOOPS), LATTICE)


def run_briefly(parameters: G2Parameters, tolerance: float, gauge: Any, sources: list[Any]) -> None:
    """What a stage does with one chunk."""
    links = hisq_links(gauge, LATTICE, boundary="antiperiodic", naik_epsilon=0.0)
    noise, solves = parameters.noise, parameters.solves
    solver = Solve(solves.solver, tolerance, solves.precision, solves.max_iterations).of_positive()
    dslash = StaggeredDslash(links)
    trace = LoopTrace(dslash, CurrentLinks(links), parameters.masses.light, solver)
    stochastic_loops(trace, sources, Dilution.parse(noise.dilution.options()), solves.block)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("precision", [pytest.param("double", marks=pytest.mark.slow), "double-single"])
def test_a_run_calls_nothing_that_was_not_rehearsed(tmp_path: Path, solver: str, precision: str) -> None:
    changes = (("solver: block_cgrq", f"solver: {solver}"), ("double-single", f"{precision}\n  block: 12"))
    parameters = parameters_of(tmp_path, *changes)
    gauge, noise = thermalised(LATTICE, 6.0, 3, "a", 3, 1), parameters.noise
    sources = [noise_vectors(LATTICE, p, "a", noise.seed, range(noise.chunk), noise.kind) for p in (0, 1)]
    with recorded() as asked:
        run_briefly(parameters, 1e-10, gauge, sources)
    with recorded() as rehearsed:
        *_, last = project(G2, parameters).rehearse(np)
    assert last[0] == last[1]
    assert len(asked) > 20
    assert asked <= rehearsed, asked - rehearsed


def test_every_solver_is_rehearsed_where_one_will_be_chosen(tmp_path: Path) -> None:
    """More solves than those of all solvers together, in other precisions, too; the first one is made."""
    totals = {}
    for solver in (*SOLVERS, "auto"):
        parameters = parameters_of(tmp_path, ("solver: block_cgrq", f"solver: {solver}"))
        done, totals[solver] = next(project(G2, parameters).rehearse(np))
        assert done == 1
    assert totals["auto"] > totals["block_cgrq"] + totals["batched_cg"]


@pytest.mark.parametrize("links", ["hisq, naik_epsilon: -0.1", "asqtad, u0: 0.9", "naive"])
def test_free_links_of_every_action(tmp_path: Path, links: str) -> None:
    """On free links the weights of one-hop and three-hop terms are those of the formulas."""
    parameters = parameters_of(tmp_path, ("action: hisq", f"action: {links}"))
    free = free_links(project(G2, parameters).workflow.nodes["operator"], LATTICE, np)
    fat, long = {
        "hisq": (1 + 1 / 8 - 0.1 / 8, -0.9 / 24),
        "asqtad": (
            5 / 8 + 6 / 16 / 0.9**2 + 24 / 64 / 0.9**4 + 48 / 384 / 0.9**6 - 6 / 16 / 0.9**4,
            -1 / 24 / 0.9**2,
        ),
        "naive": (1.0, None),
    }[parameters.links.action]
    np.testing.assert_allclose(np.abs(free.fat[..., 0, 0]), fat, rtol=1e-13)
    assert (free.long is None) == (long is None)
    if long:
        np.testing.assert_allclose(np.abs(free.long[..., 0, 0]), abs(long), rtol=1e-13)


def test_every_solver_of_perambulators_is_rehearsed_where_one_will_be_chosen(tmp_path: Path) -> None:
    """After the Laplacian in 3 widths, 16 columns by each in as many widths, and in other blocks."""
    totals = {}
    for solver in (*METHODS, "auto"):
        (tmp_path / "laph.yaml").write_text(LAPH.replace("solver: cgnr", f"solver: {solver}"))
        parameters = LaphParameters.read(read_parameter_file(tmp_path / "laph.yaml"))
        done, totals[solver] = next(project(LAPH_WORKFLOW, parameters).rehearse(np))
        assert done == 1
    assert totals["auto"] - 3 > sum(totals[solver] - 3 for solver in METHODS)


def test_the_dslash_of_an_eigensolve_is_rehearsed(tmp_path: Path) -> None:
    changes = (("solves:", "deflation: {vectors: 20, block: 5}\nsolves:"),)
    parameters = parameters_of(tmp_path, *changes)
    gauge = thermalised(LATTICE, 6.0, 3, "a", 3, 1)
    links = hisq_links(gauge, LATTICE, boundary="antiperiodic", naik_epsilon=0.0)
    with recorded() as asked:
        BlockLanczos(20, 5, tolerance=1e-6).solve(SquaredDslash(StaggeredDslash(links)))
    with recorded() as rehearsed:
        next(project(G2, parameters).rehearse(np))
    applications = {call for call in asked if call[0] == "hisq_dslash"}
    assert applications and applications <= rehearsed, applications - rehearsed


def test_an_eigensolve_is_rehearsed_on_the_links_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It packs them in double, where double products of solves read the fields."""
    changes = (("solves:", "deflation: {vectors: 20, block: 5}\nsolves:"),)
    parameters = parameters_of(tmp_path, *changes)
    assert parameters.solves.precision == "double-single"
    seen: list[bool] = []

    def solve(self: BlockLanczos, B: SquaredDslash, *others: Any, **options: Any) -> None:
        assert isinstance(B.dslash, StaggeredDslash)
        seen.append(B.dslash.packing.double)

    monkeypatch.setattr(BlockLanczos, "solve", solve)
    next(project(G2, parameters).rehearse(np))
    assert seen == [True]


def test_staggered_mesons_call_nothing_that_was_not_rehearsed(tmp_path: Path) -> None:
    (tmp_path / "hisq.yaml").write_text(HISQ_MESONS)
    parameters = HisqMesonParameters.read(read_parameter_file(tmp_path / "hisq.yaml"))
    gauge = GaugeLinks(thermalised(LATTICE, 6.0, 3, "a", 3, 1), np.array(LATTICE.extents))
    at, labels = At(config="a", source="x0y0z0t3"), parameters.mesons.labels
    dslash = hisq_operator(gauge, at=at, boundary="antiperiodic", naik_epsilon=0.0)
    sources = staggered_sources(gauge, SmearedLinks(gauge.links, LATTICE), at=at, operators=labels)
    with recorded() as asked:
        staggered_propagator(dslash, sources, at=at, mass=0.3, solve=Solve("block_cgrq", 1e-8, block=24))
    with recorded() as rehearsed:
        *_, last = project(HISQ_WORKFLOW, parameters).rehearse(np)
    assert last[0] == last[1] and len(asked) > 20
    assert asked <= rehearsed, asked - rehearsed


def test_every_width_of_a_block_is_rehearsed(tmp_path: Path) -> None:
    """8 subsets of each parity: chunks of 2 vectors are 16 columns, in blocks of 12 and 4."""
    assert widths(parameters_of(tmp_path)) == [16]
    changes = (("double-single", "double-single\n  block: 12"),)
    assert widths(parameters_of(tmp_path, *changes)) == [12, 4]
