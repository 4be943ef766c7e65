"""The shipped workflows at sizes of real ensembles on GPUs of 24 to 141 GB: what fits, and what would.

`python tests/workflows/test_gpu_cards.py` writes the file that plans are compared with; that is right where
what a task is said to cost was to change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_project import CommandLine

from pipeline import Plan, Store, plan
from pipeline.declare.text import gigabytes
from pipeline.running.clusters.cuda import Cuda
from pipeline.running.memory_advice import (
    CONTEXT,
    Shortage,
    device_memory,
    device_projection,
    device_terms,
    shortage,
)
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.staggered_operator import operator_terms
from stages.ensemble.wilson_operator import kept_terms, on_host
from stages.lqcd.gauge.wilson_links import NO_TWIST
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import PRECISIONS, REGULAR
from stages.mesons.costs import propagating_terms
from workflows.catalogue import load_project
from workflows.parameter_file import read_parameter_file

SHIPPED = Path(__file__).parents[2] / "workflows"
GOLDEN = Path(__file__).parent / "golden" / "gpu_cards.txt"
DEFLATED = "g2_disconnected, 64 eigenvectors"
WORKFLOWS: dict[str, dict[str, Any]] = {
    "g2_disconnected": {},
    DEFLATED: {"deflation": {"vectors": 64}},
    "g2_connected": {},
    "hisq_mesons": {},
    "mesons": {},
    "laph_mesons": {},
}
"""By what is changed in the file of that name."""
LATTICES = ([32, 32, 32, 48], [48, 48, 48, 64], [64, 64, 64, 96])
CARDS = (24, 48, 80, 141)
"""GB."""
SHOWN = 4
"""Terms, the largest."""


def changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Values of a file with others at dotted keys; None takes a key out."""
    result = json.loads(json.dumps(values))
    for key, value in changes.items():
        *sections, name = key.split(".")
        section = result
        for each in sections:
            section = section.setdefault(each, {})
        section[name] = value
        if value is None:
            del section[name]
    return result


def file_of(name: str, extents: list[int]) -> dict[str, Any]:
    values = read_parameter_file(SHIPPED / f"{name.split(',')[0]}.yaml").values
    assert isinstance(values, dict)
    return changed(values, {"ensemble.heatbath.extents": extents, **WORKFLOWS[name]})


def planned(values: dict[str, Any]) -> Plan:
    with TemporaryDirectory() as folder:
        file = Path(folder, "file.yaml")
        file.write_text(json.dumps(values))  # JSON is YAML, too
        return plan(load_project(file).workflow, Store(Path(folder, "store")), backend="cuda")


def fits(plan: Plan, card: int) -> bool:
    return device_memory(plan, None) + CONTEXT <= card * 10**9


@cache
def of(name: str, size: int) -> Plan:
    return planned(file_of(name, LATTICES[size]))


@cache
def short(name: str, size: int, card: int) -> Shortage | None:
    """What a card of so many GB says of a workflow."""
    found = shortage(of(name, size), Cuda(gpu_memory=card * 10**9))
    assert (found is None) == fits(of(name, size), card)
    return found


def text(name: str, size: int = 1) -> Iterator[str]:
    """What a workflow takes at one size, and what each card says of it."""
    space, _, _, time = LATTICES[size]
    terms = device_terms(of(name, size), None)
    parts = ", ".join(f"{term.term} {gigabytes(term.bytes)}" for term in terms[:SHOWN])
    yield f"{name}, {space}^3 x {time}: {gigabytes(sum(term.bytes for term in terms))}: {parts}"
    for card in CARDS:
        found = short(name, size, card)
        yield f"  {card} GB: {found.text.rpartition('CUDA itself: ')[2] if found else 'fits'}"


def paragraphs() -> dict[str, str]:
    """The pinned text by workflow."""
    return {part.partition(", 48^3")[0].strip(): part for part in GOLDEN.read_text().split("\n\n")}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_fits_on_which_card(name: str) -> None:
    assert "\n".join(text(name)) == paragraphs()[name].strip()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_remedy_that_is_followed_fits(name: str) -> None:
    """It is a file that is read and planned as any other; the next larger number would not fit."""
    followed = 0
    for size, extents in enumerate(LATTICES):
        for card in CARDS:
            found = short(name, size, card)
            for remedy in found.remedies if found else ():
                values = changed(file_of(name, extents), dict(remedy))
                assert fits(planned(values), card), (extents, card, remedy)
                numbers = {key: value + 1 for key, value in remedy.items() if type(value) is int}
                if len(numbers) == len(remedy) and "noise.chunk" not in remedy:
                    larger = changed(file_of(name, extents), {**remedy, **numbers})
                    assert not fits(planned(larger), card), (extents, card, remedy)
                followed += 1
    assert followed


def test_the_documentation_shows_what_is_printed() -> None:
    made, cluster = of("g2_disconnected", 2), Cuda(gpu_memory=80 * 10**9)
    found = shortage(made, cluster)
    shown = (SHIPPED.parent / "docs" / "scaling.md").read_text()
    assert device_projection(made, cluster) in shown
    assert found and " ".join(f"warning: {found.text}".split()) in " ".join(shown.split())


def test_lower_precisions_are_proposed() -> None:
    """Where solves take more than the eigensolve: of the vectors; and single inside of solves."""
    changes = {"deflation": {"vectors": 16}, "solves.precision": "double"}
    values = changed(file_of("g2_disconnected", LATTICES[1]), changes)
    made = planned(values)
    needed = device_memory(made, None)
    found = shortage(made, Cuda(gpu_memory=needed + CONTEXT - 10**9))
    assert found and {"solves.precision": "double-single"} in found.remedies
    assert {"deflation.precision": "single"} in found.remedies
    followed = device_memory(planned(changed(values, {"deflation.precision": "single"})), None)
    assert followed == needed - 16 * 3 * 48**3 * 64 // 2 * 8


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_byte_on_a_gpu_has_a_name(name: str) -> None:
    nodes = {chunk.node.name: chunk.node for chunk in of(name, 0).everything}
    for node in nodes.values():
        assert sum(node.cost.terms.values()) == node.cost.device_memory, node


def test_smeared_links_of_a_current_are_made_beside_the_contraction() -> None:
    """With narrow blocks most is needed then: three and a half fields of links instead of a half."""
    narrow = changed(file_of("g2_disconnected", LATTICES[0]), {"solves.block": 4})
    thin, smeared = (
        {term.term: term.bytes for term in device_terms(planned(changed(narrow, change)), None)}
        for change in ({}, {"current.links": "smeared"})
    )
    field = 4 * 144 * 32**3 * 48
    assert thin["links: current"] == field // 2
    assert smeared["links: current"] == 7 * field // 2
    assert "blocks of the contraction (N = 4)" in smeared


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_solution_that_fields_of_a_solver_leave_no_room_for(precision: str) -> None:
    """Those of GCR do, which lie together, and those of BiCGstab in double."""
    roomy = {"multigrid", "gcr", *(["bicgstab"] if precision == "double" else [])}
    for solver in REGULAR:
        terms = propagating_terms(Lattice((4, 4, 4, 4)), precision, 12, 12, solver)
        assert bool(terms["solution of a block"]) == (solver not in roomy), solver


def test_links_that_double_half_has_as_double_single() -> None:
    """Those of wide blocks, and without three-hop terms; plans count them once and call them so."""
    terms = partial(operator_terms, Lattice((4, 4, 4, 4)))
    for directions, block in ((16, 16), (16, 8), (8, 4)):
        packing = Packing(False, block)
        assert terms(directions, "double-half", packing) == terms(directions, "double-single", packing)
    assert "links: half" in terms(16, "double-half", Packing(False, 4))


def test_room_for_what_wilson_operators_have() -> None:
    """Two rows give a link unless there are phases on it or zeros; with a twist A has all its elements."""
    lattice, plain = Lattice((4, 4, 4, 4)), {"boundary": "periodic", "theta": NO_TWIST, "csw": 1.0, "mu": 0.0}
    both = []
    for change in ({}, {"theta": (0, 0, 0, 1)}, {"boundary": "dirichlet"}, {"mu": 0.1}):
        node: Any = SimpleNamespace(parameters={**plain, **change, "solves": ExpectedSolves("bicgstab")})
        terms = kept_terms(node, lattice)
        both.append((terms["links: single"], terms["clover term"], on_host(node, lattice, "double")))
    (two_rows, clover, host), *others = both
    assert others[:2] == 2 * [(two_rows * 18 // 12, clover, host)]
    assert others[2] == (two_rows, clover * 12 // 5, host + lattice.volume * 1728)


def test_a_plan_where_there_is_no_gpu(quarkline: CommandLine, tmp_path: Path) -> None:
    """The memory of the GPUs is written in the cluster's section, or given for once."""
    file = tmp_path / "g2.yaml"
    file.write_text(json.dumps(file_of(DEFLATED, LATTICES[1])))
    options = ("--cluster", "cuda", "--store", str(tmp_path / "store"))
    said = quarkline("plan", file, *options, "--set", "cluster.gpu_memory=48GB").out
    head, columns, *rows = said[said.rindex("projected: ") :].splitlines()
    assert head.startswith("projected: ") and head.endswith("on each GPU of 48 GB")
    assert columns.split() == ["on", "the", "GPU", "of", "GB", "share"]
    assert any(row.split()[:2] == ["links:", "double"] for row in rows)
    assert rows[-1].startswith("warning: a task of node 'deflation_space' needs")
    given = quarkline("plan", file, *options, "--set", "cluster.gpu_memory=48GB", "--json").out
    content = json.loads(given)
    assert content["device_memory_bytes"] == sum(term["bytes"] for term in content["device_terms"])
    assert content["remedies"] == [{"deflation": None}] and "without `deflation`" in content["warning"]
    assert "at least" in quarkline("plan", file, *options).out


def main() -> None:
    """Write the file."""
    GOLDEN.write_text("\n\n".join("\n".join(text(name)) for name in WORKFLOWS) + "\n")


if __name__ == "__main__":
    main()
