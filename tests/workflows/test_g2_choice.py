"""`solver: auto` of the disconnected current: a round measures, the campaign is that of the solver named."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_target import TARGETED
from tiny_project import TINY, CommandLine, edit, few_candidates

from pipeline import Store, open_result, run
from pipeline import plan as make_plan
from pipeline.running.clusters.choose import choose
from pipeline.store.record import sealed
from stages.lqcd.solvers.trial import Candidate, candidates
from workflows.catalogue import load_project
from workflows.g2_disconnected.build import deflated_solves
from workflows.g2_disconnected.schema import G2Parameters
from workflows.parameter_file import read_parameter_file
from workflows.shared.choice import named

AUTO = ("solver: block_cgrq", "solver: auto")
DEFLATION = "deflation: {vectors: 6, block: 2, precision: single}\n"
SECTION = ("solves:", f"{DEFLATION}solves:")
LOW_MODES = ("current:", "estimator: {low_modes: true}\ncurrent:")
COMPARED = ("current:", "alternatives: {low: {low_modes: true}}\ncurrent:")
TARGET = "target: {loops: 0.2}\n"


@pytest.fixture(scope="module", autouse=True)
def one_solver() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        few_candidates(patch)
        yield


@pytest.fixture(scope="module")
def measured(
    finished: Path, tmp_path_factory: pytest.TempPathFactory, cluster: str, quick_trials: None
) -> Path:
    """The finished tiny run, by block CGrQ, with trials of it and with low modes. Only to be copied."""
    folder = tmp_path_factory.mktemp("measured")
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    file = edit(folder / "g2.yaml", AUTO, SECTION)
    with pytest.MonkeyPatch.context() as place:
        place.chdir(folder)
        store, chosen = Store(Path("store")), choose(cluster)
        first = make_plan(load_project(file).workflow, store, backend=chosen.backend)
        names = [chunk.node.name for chunk in first.missing]
        assert names == ["deflation_space", "solver_trials"]
        assert run(first, store, cluster=chosen).exit_status == 0
    return folder


@pytest.fixture
def auto(measured: Path, tmp_path: Path) -> Path:
    """A copy in which the choosing round is complete; its workflow file."""
    shutil.copytree(measured, tmp_path, dirs_exist_ok=True)
    return tmp_path / "g2.yaml"


def eigensolve_took(seconds: float, file: Path) -> None:
    """As the record of the deflation space says it from now on."""
    (path,) = file.parent.glob("store/deflation_space/*/*/zarr.json")
    content = json.loads(path.read_text())
    content["attributes"]["statistics"]["eigensolve_seconds"] = seconds
    for part in content["attributes"]["parts"]:
        part["seconds"] += abs(seconds)
    content["attributes"] = sealed(content["attributes"])
    path.write_text(json.dumps(content))


def planned(quarkline: CommandLine, file: Path) -> tuple[list[str], dict[str, str]]:
    """What rounds led to, and the missing chunks, key: node."""
    answer = quarkline("plan", file, "--json")
    assert answer.code == 0, answer.err
    plan = json.loads(answer.out)
    return plan["rounds"], {chunk["key"]: chunk["node"] for chunk in plan["missing"]}


CHOSEN = r"solver: ([\w -]+) is the cheapest of \d+ tried, [\d.e+-]+ s per configuration.*"


def chosen(rounds: list[str]) -> Candidate:
    found = re.fullmatch(CHOSEN, rounds[0])
    assert found, rounds
    return Candidate.parse(found[1])


def name(file: Path, solver: Candidate) -> None:
    """Edit a file with `solver: auto` into one that names what was chosen."""
    precision = f"precision: {solver.precision}\n  block: {solver.block}\n"
    edit(file, ("solver: auto", f"solver: {solver.solver}"), ("precision: double-single\n", precision))


def test_cheap_eigenvectors_are_taken(quarkline: CommandLine, auto: Path) -> None:
    """The campaign is that of the file that names the deflated solver, and takes the space that is there."""
    eigensolve_took(-1e6, auto)
    rounds, missing = planned(quarkline, auto)
    solver = chosen(rounds)
    assert solver.deflated
    assert Counter(missing.values())["deflation_space"] == 1 and "solver_trials" not in missing.values()
    name(auto, solver)
    assert planned(quarkline, auto) == ([], missing)


def test_dear_eigenvectors_are_left_out(quarkline: CommandLine, auto: Path) -> None:
    """The campaign is that of a file without the section."""
    eigensolve_took(1e6, auto)
    rounds, missing = planned(quarkline, auto)
    solver = chosen(rounds)
    assert not solver.deflated and "deflation_space" not in missing.values()
    assert (not missing) == (str(solver) == "block_cgrq double-single 16")  # what the finished run took
    name(edit(auto, (DEFLATION, "")), solver)
    assert planned(quarkline, auto) == ([], missing)


def test_a_campaign_that_grows_keeps_its_choice(quarkline: CommandLine, auto: Path) -> None:
    eigensolve_took(1e6, auto)
    before = chosen(planned(quarkline, auto)[0])
    edit(auto, ("  vectors: 4", "  vectors: 8"), ("configurations: 2", "configurations: 3"))
    rounds, missing = planned(quarkline, auto)
    assert chosen(rounds) == before
    assert Counter(missing.values())["configuration"] == 1
    assert not {"deflation_space", "solver_trials"} & set(missing.values())


@pytest.mark.parametrize(
    "change", [("seed: 55", "seed: 56"), ("light: 0.1", "light: 0.11"), ("1.0e-3", "2.0e-3"), SECTION]
)
def test_other_systems_are_measured_anew(quarkline: CommandLine, auto: Path, change: tuple[str, str]) -> None:
    if change is SECTION:
        change = ("vectors: 6", "vectors: 7")
    rounds, missing = planned(quarkline, edit(auto, change))
    again = {"deflation_space", "solver_trials"} if "vectors" in change[0] else {"solver_trials"}
    assert rounds == [] and set(missing.values()) == again


def test_the_run_and_its_report(quarkline: CommandLine, auto: Path, cluster: str) -> None:
    """Nothing of the choosing round again, its table in the report, and results by name."""
    eigensolve_took(1e6, auto)
    answer = quarkline("run", auto, "--cluster", cluster)
    found = re.search(f"^{CHOSEN}$", answer.out, re.MULTILINE)
    assert answer.code == 0 and found, answer.out
    assert not re.search(r"^ +(deflation_space|solver_trials) +1 +0$", answer.out, re.MULTILINE)
    text = (auto.parent / "report" / "tables.txt").read_text()
    assert "# Choice of the solver" in text and "s for 192 rhs" in text and "# Low modes" not in text
    assert re.search(rf"\n{found[1]} .* chosen\n", text)
    assert re.search(r"\ndeflated \w+ double\S* \d+ .* 1000000\.00 ", text)
    page = (auto.parent / "report" / "index.html").read_text()
    assert "Of each solver: light sloppy even / light sloppy odd / light fine even / " in page
    trials = open_result(auto.parent / "store", "solver_trials").load()
    assert trials.seconds_per_rhs.dims == ("config", "solver", "system")
    row = trials.isel(config=0).sel(solver=found[1])
    assert np.all(row.residual.values <= [1e-3, 1e-3, 1e-10, 1e-10] * 2)
    assert planned(quarkline, auto)[1] == {}
    left = "no chunk" in quarkline("gc", auto, "--yes").out
    assert left == (found[1] == "block_cgrq double-single 16")  # what the finished run took
    assert re.search(r"solver_trials +solver_trials +1 +1\n", quarkline("status", auto).out)


def test_no_solver_converges(quarkline: CommandLine, auto: Path, cluster: str) -> None:
    edit(auto, ("seed: 55", "seed: 57"), ("double-single", "double-single\n  max_iterations: 3"))
    answer = quarkline("run", auto, "--cluster", cluster)
    assert answer.code == 1 and "Traceback" not in answer.err
    said = "no solver reached the tolerance (block_cgrq double-single 16: light sloppy even, 16 of 16"
    assert answer.out.count(said) == 1
    assert "raise max_iterations, loosen the tolerance, or use a larger mass" in answer.out


def test_trials_come_before_the_rounds_of_a_target(quarkline: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "g2.yaml").write_text(TARGETED)
    rounds, missing = planned(quarkline, edit(tmp_path / "g2.yaml", AUTO, SECTION))
    assert rounds == []
    assert Counter(missing.values()) == {"configuration": 1, "deflation_space": 1, "solver_trials": 1}


@pytest.mark.slow
def test_the_rounds_of_a_target_after_trials(quarkline: CommandLine, tmp_path: Path, cluster: str) -> None:
    """The space is needed anyway; the pilot, and what follows, are those of the solver named."""
    (tmp_path / "g2.yaml").write_text(TARGETED)
    file = edit(tmp_path / "g2.yaml", AUTO, SECTION)
    store, project = Store(tmp_path / "store"), load_project(file)
    with_cluster = choose(cluster)
    run(make_plan(project.workflow, store, backend=with_cluster.backend), store, cluster=with_cluster)
    rounds, missing = planned(quarkline, file)
    assert chosen(rounds).deflated and Counter(missing.values())["deflation_space"] == 1
    name(file, chosen(rounds))
    assert planned(quarkline, file) == ([], missing)


@pytest.mark.slow
def test_a_target_with_a_chosen_solver(quarkline: CommandLine, tmp_path: Path, cluster: str) -> None:
    (tmp_path / "g2.yaml").write_text(TARGETED)
    file = edit(tmp_path / "g2.yaml", AUTO)
    answer = quarkline("run", file, "--cluster", cluster)
    assert answer.code == 0 and "target met" in answer.out and "round 2" in answer.out
    solver = re.findall(f"^{CHOSEN}$", answer.out, re.M)
    rounds, missing = planned(quarkline, file)
    assert missing == {} and rounds[0].startswith(f"solver: {solver[0]} ") and "target met" in rounds[-1]
    text = (tmp_path / "report" / "tables.txt").read_text()
    assert "# Choice of the solver" in text and "# Target" in text
    name(file, chosen(rounds))
    assert planned(quarkline, file) == (rounds[1:], {})


def parameters_of(folder: Path, text: str, *changes: tuple[str, str]) -> G2Parameters:
    file = folder / "parameters.yaml"
    file.write_text(text)
    return G2Parameters.read(read_parameter_file(edit(file, AUTO, *changes)))


@pytest.mark.parametrize(
    ("text", "changes", "left"),
    [
        (TINY, [], [False]),
        (TARGETED, [], [False]),
        (TINY, [SECTION], [False, True]),
        (TINY, [("solves:", "deflation: {vectors: auto}\nsolves:")], [0, 8, 4, 2, 1]),
        (TINY, [SECTION, LOW_MODES], [True]),
        (TINY, [SECTION, COMPARED], [True]),
        (TARGETED, [SECTION], [True]),
    ],
)
def test_what_there_is_to_choose_from(tmp_path, text, changes, left, monkeypatch):
    monkeypatch.setattr("workflows.shared.solves_section.candidates", candidates)
    parameters = parameters_of(tmp_path, text, *changes)
    assert list(deflated_solves(parameters)) == left
    names = parameters.solves.candidates(16, left)
    assert {Candidate.parse(each).precision for each in names} == {"double", "double-single"}
    assert {Candidate.parse(each).solver for each in names} == {"batched_cg", "block_cgrq"}
    blocks = [each for each in map(Candidate.parse, names) if each.solver == "block_cgrq"]
    last = blocks[-1]
    alone = named(parameters, last)
    assert (alone.deflation is None) == (not left[-1])
    assert alone.solves.solver == "block_cgrq" and alone.solves.block == last.block != parameters.solves.block
