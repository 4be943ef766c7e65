"""Mistakes in a workflow file: each one message with its line and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.base.errors import InputError
from stages.loops.solver_trials import TrialSolves
from stages.lqcd.solvers.defect_correction import DefectCorrection
from stages.lqcd.solvers.frame import ReliableUpdates
from stages.lqcd.solvers.named import Solve
from workflows.g2_disconnected.schema import G2Parameters, SolvesSection
from workflows.hisq_mesons.schema import StaggeredSolves
from workflows.parameter_file import read_parameter_file
from workflows.shared.quark_sections import QuarkSolves

GOOD = """\
workflow: g2_disconnected
ensemble:
  heatbath:
    extents: [4, 4, 4, 8]
    beta: 6.0
    configurations: 3
    sweeps: 5
    overrelaxation: 1
    seed: 977
links: {action: hisq, boundary: antiperiodic}
masses:
  light: 0.1
  strange: 0.3
noise:
  kind: z4
  seed: 55
  vectors: 4
  chunk: 2
  dilution: {displacement: 2}
solves:
  solver: block_cgrq
  precision: double
  sloppy: {tolerance: 1.0e-3}
  fine: {tolerance: 1.0e-10, vectors: 2}
current: {links: thin}
store: here
report: there
"""

MISTAKES = {
    "misspelt key": (
        ("  light: 0.1", "  lihgt: 0.1"),
        "unknown key `lihgt` in `masses` (line 12): did you mean `light`?",
    ),
    "unknown key": (
        ("current: {links: thin}", "current: {links: thin}\nbananas: 3"),
        "unknown key `bananas` at the top level (line 26); known: workflow, ensemble, analysis, "
        "cluster, store, report, links, masses, noise, deflation, estimator, alternatives, solves, "
        "current, exact, target",
    ),
    "misspelt section": (
        ("noise:", "noises:"),
        "unknown key `noises` at the top level (line 14): did you mean `noise`?",
    ),
    "missing key": (("  seed: 55\n", ""), "missing key `seed` in `noise` (line 14)"),
    "missing section": (
        ("current: {links: thin}\n", ""),
        "missing key `current` at the top level (line 1): write `current: {links: thin or smeared or fat}`",
    ),
    "text for a number": (
        ("  light: 0.1", "  light: heavy"),
        "`masses.light` (line 12) is 'heavy', expected a number",
    ),
    "fraction for a count": (
        ("vectors: 4", "vectors: 4.5"),
        "`noise.vectors` (line 17) is 4.5, expected a whole number",
    ),
    "truth value for a count": (
        ("sweeps: 5", "sweeps: yes please"),
        "`ensemble.heatbath.sweeps` (line 7) is 'yes please', expected a whole number",
    ),
    "value for a section": (
        ("current: {links: thin}", "current: thin"),
        "`current` (line 25) is 'thin', expected a section of `key: value` lines",
    ),
    "zero mass": (
        ("strange: 0.3", "strange: 0"),
        "`masses.strange` (line 13): a mass must be positive, got 0.0: the normal operator is 4 m^2 - D^2",
    ),
    "infinite mass": (
        ("strange: 0.3", "strange: .inf"),
        "`masses.strange` (line 13) is inf, expected a finite number",
    ),
    "odd extent": (
        ("[4, 4, 4, 8]", "[4, 5, 4, 8]"),
        "`ensemble.heatbath.extents` (line 4): lattice extents must be four even numbers of at least 2 "
        "(x y z t), got (4, 5, 4, 8): fields are stored by parity",
    ),
    "three extents": (
        ("[4, 4, 4, 8]", "[4, 4, 8]"),
        "`ensemble.heatbath.extents` (line 4) is [4, 4, 8], expected 4 values",
    ),
    "unknown boundary": (
        ("antiperiodic", "anti"),
        "`links.boundary` (line 10) is 'anti', expected 'periodic' or 'antiperiodic'",
    ),
    "asqtad without u0": (
        ("action: hisq", "action: asqtad"),
        "`links.action` (line 10): the asqtad action needs `u0`: add it to `links`",
    ),
    "u0 for hisq": (
        ("action: hisq", "action: hisq, u0: 0.86"),
        "`links.u0` (line 10): the hisq action takes no `u0`: leave it out",
    ),
    "u0 that is not positive": (
        ("action: hisq", "action: asqtad, u0: 0.0"),
        "`links.u0` (line 10) is 0.0, expected a number above 0.0",
    ),
    "naik_epsilon for naive links": (
        ("action: hisq", "action: naive, naik_epsilon: -0.1"),
        "`links.naik_epsilon` (line 10): the naive action takes no `naik_epsilon`: leave it out",
    ),
    "one noise vector": (
        ("vectors: 4", "vectors: 1"),
        "`noise.vectors` (line 17): got 1, but a disconnected correlator pairs different noise vectors: "
        "at least 2",
    ),
    "dilution that does not divide": (
        ("displacement: 2", "displacement: 3"),
        "`noise.dilution` (line 19): dilution.displacement = 3 does not divide every extent of the lattice "
        "4x4x4x8: take a divisor of 4",
    ),
    "dilution of another type": (
        ("displacement: 2", "time: often"),
        "`noise.dilution` (line 19): dilution.time must be a number of slices, or 'full', at least 1, "
        "got 'often'",
    ),
    "chunk that does not divide": (
        ("chunk: 2", "chunk: 3"),
        "`noise.chunk` (line 18): 3 does not divide the 4 noise vectors: change one of the two",
    ),
    "fine vectors that no whole chunks make up": (
        ("vectors: 2}", "vectors: 3}"),
        "`solves.fine.vectors` (line 24): 3 is no multiple of `noise.chunk`, 2: vectors are solved 2 at a "
        "time, change one of the two",
    ),
    "fine looser than sloppy": (
        ("1.0e-10", "1.0e-2"),
        "`solves.fine.tolerance` (line 24): 0.01 must be tighter than the sloppy 0.001",
    ),
    "half with a block": (
        ("precision: double", "precision: double-half"),
        "`solves.precision` (line 22): double-half is for batched_cg, not for block_cgrq: take that "
        "solver, or double-single",
    ),
    "more fine vectors than vectors": (
        ("vectors: 2}", "vectors: 8}"),
        "`solves.fine.vectors` (line 24): 8 fine vectors, but `noise.vectors` is 4: at most that",
    ),
    "both sources": (
        ("ensemble:", 'ensemble:\n  files: "*.ildg"'),
        "`ensemble` (line 2): give either `heatbath` or `files`, and not both",
    ),
    "bins too wide": (
        ("store: here", "store: here\nanalysis: {jackknife_bin: 2}"),
        "`analysis.jackknife_bin` (line 27): 3 configurations in bins of 2 leave fewer than two bins: take "
        "more configurations or smaller bins",
    ),
    "key given twice": (
        ("  seed: 55\n", "  seed: 55\n  seed: 56\n"),
        'line 17: found duplicate key "seed" with value "56" (original value: "55"): remove one of the two',
    ),
    "report in the store": (
        ("report: there", "report: here/there"),
        "`report` (line 27): 'here/there' lies in the store 'here': name another folder",
    ),
    "empty report": (("report: there", "report: ''"), "`report` (line 27): is empty: name a folder"),
    "key that is a number": (
        ("store: here", "store: here\n3: x"),
        "unknown key 3 at the top level (line 27): a key is a word",
    ),
    "key that is a list": (
        ("kind: z4", "kind: z4\n  [a, b]: 3"),
        "unknown key ('a', 'b') in `noise` (line 16): a key is a word",
    ),
    "not YAML": (
        ("vectors: 4", "vectors: [4"),
        "not valid YAML: line 18: expected ',' or ']', but got ':': close the brackets",
    ),
}


def read(tmp_path: Path, text: str) -> G2Parameters:
    path = tmp_path / "g2.yaml"
    path.write_text(text)
    return G2Parameters.read(read_parameter_file(path))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_message(tmp_path: Path, mistake: str) -> None:
    (before, after), message = MISTAKES[mistake]
    assert before in GOOD
    with pytest.raises(InputError) as caught:
        read(tmp_path, GOOD.replace(before, after))
    assert str(caught.value) == f"{tmp_path / 'g2.yaml'}: {message}"


def test_all_problems_are_listed_together_in_order_of_line(tmp_path: Path) -> None:
    text = (
        GOOD.replace("beta: 6.0", "beta: -6")
        .replace("light: 0.1", "lite: 0.1")
        .replace("chunk: 2", "chunk: two")
    )
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert str(caught.value).splitlines() == [
        f"{tmp_path / 'g2.yaml'}: 3 problems",
        "  - `ensemble.heatbath.beta` (line 5) is -6, expected a number above 0.0",
        "  - unknown key `lite` in `masses` (line 12): did you mean `light`?",
        "  - `noise.chunk` (line 18) is 'two', expected a whole number",
    ]


def test_exact_trace_is_for_tiny_lattices(tmp_path: Path) -> None:
    exact = GOOD + "exact: true\n"
    assert read(tmp_path, exact).exact
    with pytest.raises(InputError, match=r"`exact` \(line 28\): .* 8x8x8x8 needs 12288 solves"):
        read(tmp_path, exact.replace("[4, 4, 4, 8]", "[8, 8, 8, 8]"))


def test_lattice_that_fits_no_memory_is_still_checked(tmp_path: Path) -> None:
    huge = GOOD.replace("[4, 4, 4, 8]", "[4096, 4096, 4096, 4096]")
    assert read(tmp_path, huge).noise.dilution.scheme().displacement == 2
    with pytest.raises(InputError, match="does not divide every extent of the lattice 4096x4096x4096x4096"):
        read(tmp_path, huge.replace("displacement: 2", "displacement: 3"))


def test_good_file_keeps_every_value(tmp_path: Path) -> None:
    parameters = read(tmp_path, GOOD)
    assert parameters.ensemble.heatbath is not None
    assert parameters.ensemble.heatbath.lattice.extents == (4, 4, 4, 8)
    assert (parameters.masses.light, parameters.masses.strange) == (0.1, 0.3)
    assert parameters.noise.dilution.scheme().displacement == 2
    assert parameters.analysis.jackknife_bin == 1 and not parameters.exact


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("- a\n- b\n", "a workflow file holds `key: value` lines, found ['a', 'b']"),
        ("\tstore: x\n", "not valid YAML: line 1"),
    ],
)
def test_no_mapping(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"g2\.yaml: ") as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_missing_file_suggests_a_neighbour(tmp_path: Path) -> None:
    (tmp_path / "g2_disconnected.yaml").write_text(GOOD)
    with pytest.raises(InputError, match=r"no such workflow file: did you mean .*g2_disconnected\.yaml"):
        read_parameter_file(tmp_path / "g2_disconected.yaml")


def test_binary_file_and_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "lattice.bin").write_bytes(bytes(range(128, 256)))
    for path in (tmp_path, tmp_path / "lattice.bin"):
        with pytest.raises(InputError, match="cannot be read as a text file"):
            read_parameter_file(path)


@pytest.mark.parametrize("section", [SolvesSection, StaggeredSolves, QuarkSolves])
def test_limits_of_iterations_in_files_fit_light_masses(section: type) -> None:
    """51737 were needed at m = 0.0005."""
    assert section.model_fields["max_iterations"].default >= 100_000


@pytest.mark.parametrize("options", [ReliableUpdates, DefectCorrection, Solve, TrialSolves])
def test_limits_of_iterations_fit_light_masses(options: type) -> None:
    assert options.__dataclass_fields__["max_iterations"].default >= 100_000
