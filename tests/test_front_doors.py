"""What other groups may import and is kept stable; our own workflows and the manual take nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

import quarkline

ROOT = Path(__file__).parents[1]
OFFERED = {
    "pipeline": """
At Chunk Chunks Cost Dashboard Details Dims Figure FolderCheckpoint FromParameter InputError Keyed LARGEST
Node NodeAccount Outcome Pass Place Plan Record Resources Section Share Store Table Workflow accounts
collect_garbage counted duration_text explain export_hdf5 node_keys open_result plan run stage status
table_text value_with_error verify
""",
    "quarkline": """
Blinding Dilution HvpSum InputError LaplaceSolver Lattice LowModes Measured NotConverged Operator
Resampling Scale SlaphFiles Solution SolveStatus Solver SourcePlace Staggered Tail VectorCorrelator a_mu
asqtad bicgstab bin_means block_cg bootstrap_error bootstrap_samples cg
check_gauge copy_to_host disconnected_correlator effective_mass hisq jackknife_covariance
jackknife_error jackknife_samples lowest meson_correlators meson_fields milc_ensemble multigrid
noise_vectors open_result plaquette point_source random_wall read_gauge read_tmlqcd rest_correlator spectrum
staggered_correlator staggered_source stout_links thermalised to_device vector_current wall_source
wilson_clover write_tmlqcd z2_wall_source
""",
    "workflows": """
AnalysisSection Configurations Definition DeflationSection EnsembleSection FileSection LinkSmearingSection
Location NAIK_EPSILON Names ParameterFile Problem Project QuarkDefinition QuarkParameters QuarkSolves
QuarkSourceSection PositiveSolves SLOPPY SOLVES SPACE STAGGERED_MASS Seed SloppySection SolverSection
StaggeredDefinition Step
TOLERANCE Times Triples Usual WorkflowParameters aliases available average_text choice_sections
correlator_section correlator_text correlator_texts
deflation_economies deflation_variants degrees_of_freedom errors_in first_chunk gauge_section loaded
mass_section mass_text momentum_text node_of nodes_of
setup_sections solves_of solves_row solves_section spectrum_section validated variants winding with_errors
Flavours beside checked_parts neutral_sections
""",
}
"""Names that are kept: one that goes, or means something else, is a change that CHANGELOG tells."""
OWN = ("g2_connected", "g2_disconnected", "g2_hvp", "hisq_mesons", "laph_mesons", "mesons")
JOINED = {"g2_hvp": ("g2_connected", "g2_disconnected")}
"""Workflows whose nodes another one has, too."""
HEAVY = ("dask", "distributed", "matplotlib", "numba", "numpy", "pydantic", "typer", "xarray", "zarr")


@pytest.mark.parametrize("package", OFFERED)
def test_names_that_a_package_offers(package: str) -> None:
    door = import_module(package)
    assert door.__all__ == sorted(OFFERED[package].split())
    assert all(hasattr(door, name) for name in door.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = door.nothing


@pytest.mark.parametrize("package", OFFERED)
def test_front_doors_load_nothing_before_they_are_asked(package: str) -> None:
    code = f"import sys, {package}; print(*sorted(sys.modules.keys() & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def imported(code: str) -> Iterator[str]:
    """Modules that a piece of code imports, wherever in it."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def deeper(code: str, *own: str) -> list[str]:
    """Modules behind the front doors, but for those of a workflow itself, and of others that it joins."""
    return [
        name
        for name in imported(code)
        if name.startswith(("pipeline.", "workflows."))
        and not f"{name}.".startswith(tuple(f"{each}." for each in own))
    ]


@pytest.mark.parametrize("workflow", OWN)
def test_own_workflows_use_the_front_doors(workflow: str) -> None:
    own = [f"workflows.{each}" for each in (workflow, *JOINED.get(workflow, ()))]
    files = {path: deeper(path.read_text(), *own) for path in modules_of(workflow)}
    assert files and not any(files.values()), {path.name: names for path, names in files.items() if names}


def modules_of(workflow: str) -> list[Path]:
    return sorted((ROOT / "workflows" / workflow).rglob("*.py"))


def test_the_manual_shows_the_front_doors_alone() -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "extending.md").read_text(), re.M | re.S)
    assert len(snippets) > 5
    whole = [snippet for snippet in snippets if not snippet.startswith("# excerpt")]
    assert not [name for snippet in whole for name in deeper(snippet)]


def test_a_deeper_import_is_noticed() -> None:
    assert deeper("from pipeline import Store\nfrom pipeline.store.store import Store") == [
        "pipeline.store.store"
    ]
    assert deeper("from workflows.mesons.schema import X", "workflows.mesons") == []
    assert deeper("from workflows.mesons.schema import X", "workflows.laph_mesons") != []


def test_a_folder_that_hides_a_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One without `__init__.py` hides the packages of an installation that is edited."""
    hides = ModuleSpec("stages", None, is_package=True)
    hides.submodule_search_locations = [str(tmp_path / "stages")]
    monkeypatch.setattr(quarkline, "find_spec", lambda name: hides if name == "stages" else find_spec(name))
    assert f"but Python finds {tmp_path / 'stages'} under that name" in quarkline.stranger()
