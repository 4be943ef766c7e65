"""Tuning on a GPU: it covers what a run asks for, alters results by rounding only, and is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_project import TINY, edit

pytest.importorskip("cupy")


from pipeline import At
from stages.ensemble import staggered_operator as operators
from stages.ensemble.configuration import GaugeLinks
from stages.loops import current_loops as loops
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.kernels.cuda.tuning.choice import ShapeProblem, forget_choices, listening, measured_choices
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.noise import Noise
from stages.lqcd.solvers.named import Solve
from workflows.catalogue import load_project
from workflows.tuning import Tuning, tune

pytestmark = pytest.mark.gpu
LATTICE = Lattice((4, 4, 4, 4))


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("QUARKLINE_CACHE", str(tmp_path / "cache"))
    read_again()
    yield
    monkeypatch.undo()
    read_again()


def read_again() -> None:
    """As a new process would."""
    measured_choices.cache_clear()
    forget_choices()


def tuned(folder: Path, solver: str) -> Tuning:
    (folder / "g2.yaml").write_text(TINY)
    file = edit(folder / "g2.yaml", ("solver: block_cgrq", f"solver: {solver}"))
    return tune(load_project(file), lambda done, total, kernel: None)


def measure(solver: str) -> tuple[loops.CurrentLoops, At]:
    """One chunk of the tiny workflow."""
    at = At(config="a", noise=(0, 1), backend="cuda")
    gauge = GaugeLinks(thermalised(LATTICE, 6.0, 3, "a", 3, 1), np.array(LATTICE.extents))
    made = operators.hisq_operator(gauge, at=at, boundary="antiperiodic", naik_epsilon=0.0)
    noise, solve = Noise(55, "z2", {"displacement": 2}), Solve(solver, 1e-10)
    return loops.current_loops(made, at=at, mass=0.1, noise=noise, solve=solve), at


@pytest.mark.parametrize("solver", ["block_cgrq", "batched_cg"])
def test_every_choice_of_a_run_was_measured(tmp_path: Path, solver: str) -> None:
    tuning = tuned(tmp_path, solver)
    asked: set[str] = set()

    def listener(problem: ShapeProblem) -> Launch:
        if len(problem.options.shapes) > 1:
            asked.add(problem.name)
        return problem.launch(problem.measured(measured_choices()))

    with listening(listener):
        measure(solver)
    assert asked and asked <= {finding.problem for finding in tuning.findings}
    assert not tuning.unmeasured
    assert not [finding for finding in tuning.findings if finding.rejected]


@pytest.mark.parametrize("solver", ["block_cgrq", "batched_cg"])
def test_results_agree_to_rounding_and_name_their_choices(tmp_path: Path, solver: str) -> None:
    plain, at = measure(solver)
    assert "kernel_choices" not in at.statistics
    findings = tuned(tmp_path, solver).findings
    read_again()
    after, at = measure(solver)
    assert np.allclose(after.current, plain.current, rtol=0, atol=1e-7)
    assert np.allclose(after.condensate, plain.condensate, rtol=1e-8)
    changed = {finding.problem for finding in findings if finding.shape != finding.model}
    named = {choice.partition(":")[0] for choice in at.statistics.get("kernel_choices", [])}
    assert named <= changed and bool(named) == bool(changed)
