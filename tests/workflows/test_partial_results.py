"""Results of what exists where something failed: marked, and made anew once the rest is there."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from tiny_mesons import MESONS
from tiny_project import CommandLine, edit, missing, run_to_its_end

from pipeline import InputError, open_result
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.formats import write_ildg
from stages.lqcd.lattice.geometry import Lattice
from workflows.partial import complete_labels

LABELS = [f"conf.{number}.ildg" for number in range(3)]
MARK = "2 of 3 configurations"
SMOOTH = 1
"""Number of the configuration whose solves take more iterations than the others'."""
FILES = re.sub(r"  heatbath: .*\n", '  files: "confs/*.ildg"\n', MESONS).replace("[0, 2]", "[0]")


def damage(file: Path) -> Callable[[], int]:
    """Flip a bit of a gauge file; returns what mends it."""
    good = file.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 4
    file.write_bytes(bad)
    return lambda: file.write_bytes(good)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
    """A folder in which `mesons.yaml` has run to its end on three files. Only to be copied."""
    folder = tmp_path_factory.mktemp("three")
    (folder / "confs").mkdir()
    lattice = Lattice((4, 4, 4, 4))
    for number, label in enumerate(LABELS):
        beta = 60.0 if number == SMOOTH else 6.0
        write_ildg(folder / "confs" / label, thermalised(lattice, beta, number, label, 3, 0), lattice, 64)
    (folder / "mesons.yaml").write_text(FILES)
    return run_to_its_end(folder, cluster, "mesons.yaml")


@pytest.fixture
def three(ran: Path, tmp_path: Path) -> Path:
    """A copy of the finished run; its workflow file."""
    shutil.copytree(ran, tmp_path, dirs_exist_ok=True)
    return tmp_path / "mesons.yaml"


def test_nodes_that_are_complete_nowhere_hide_no_configuration() -> None:
    """Of `fields` configuration a is missing, of `loops` all, and `average` is of all together."""
    nodes = [SimpleNamespace(name=name, over={"config": tuple("abc")}) for name in ("fields", "loops")]
    chunks = [
        SimpleNamespace(node=node, key=f"{number}{label}", coordinates={"config": (label,)})
        for number, node in enumerate(nodes)
        for label in "abc"
    ]
    chunks.append(SimpleNamespace(node=SimpleNamespace(over={}), key="average", coordinates={}))
    reasons = dict.fromkeys(["0a", "1a", "1b", "1c", "average"])
    assert complete_labels(SimpleNamespace(chunks=chunks, reasons=reasons)) == ["b", "c"]  # type: ignore[arg-type]


def test_one_damaged_file_of_three(quarkline: CommandLine, three: Path, cluster: str) -> None:
    """Report, average and export of the other two, marked; the same command completes them."""
    folder = three.parent
    whole = open_result(folder / "store", "average").load()
    each = open_result(folder / "store", "mesons").load()
    for name in ("store", "report"):
        shutil.rmtree(folder / name)
    mend = damage(folder / "confs" / LABELS[2])

    answer = quarkline("run", three, "--cluster", cluster)
    assert answer.code == 1 and f"report ({MARK}): " in answer.out
    told = quarkline("status", folder / "store").out
    assert re.search(rf"^failed: 2 chunks: .*{LABELS[2]}.*checksum", told, re.MULTILINE), told
    with pytest.raises(InputError, match=r"0 of 1 chunks .* open what is there in Python with partial=True"):
        open_result(folder / "store", "average")
    part = open_result(folder / "store", "average", partial=True).load()
    others = each.correlator.drop_sel(config=LABELS[2]).values.real.mean(axis=(0, 1))
    np.testing.assert_allclose(part.correlator, others, rtol=1e-13)
    assert part.attrs["partial"] == MARK and part.sizes["sample"] == 2
    files = {
        name: (folder / "report" / name).read_text() for name in ("index.html", "tables.txt", "mesons.txt")
    }
    assert files["mesons.txt"].startswith(f"# {MARK}\n")
    for text in files.values():
        assert MARK in text
    captions = re.findall(r"<caption>(.*?)</caption>", files["index.html"])
    assert len(captions) == files["index.html"].count("<table>") and all(MARK in each for each in captions)
    assert "What is missing" in files["index.html"]
    assert re.search(rf"mesons +1 +{LABELS[2]}\n", files["tables.txt"])
    np.testing.assert_allclose(np.loadtxt(folder / "report" / "mesons.txt")[:, 1], part.correlator[0, 0])

    answer = quarkline("export", three, "--output", "out")
    assert answer.code == 1 and f"until then: {MARK}" in answer.err
    for name, configurations in (("average", None), ("mesons", 2)):
        with h5py.File(folder / "out" / f"{name}.h5") as file:
            assert file.attrs["partial"] == MARK
            assert configurations is None or len(file["config"]) == configurations
    assert quarkline("report", three).code == 1

    mend()
    assert missing(quarkline, three) == {"observables": 1, "mesons": 1, "average": 1}
    answer = quarkline("run", three, "--cluster", cluster)
    assert answer.code == 0
    found = open_result(folder / "store", "average").load()
    np.testing.assert_allclose(found.correlator, whole.correlator, rtol=1e-13)
    assert "partial" not in found.attrs and found.sizes["sample"] == 3
    assert MARK not in (folder / "report" / "index.html").read_text()
    assert quarkline("export", three, "--output", "out").code == 0
    with h5py.File(folder / "out" / "average.h5") as file:
        assert "partial" not in file.attrs


def test_one_solve_that_does_not_converge(quarkline: CommandLine, three: Path, cluster: str) -> None:
    """Its configuration is left out of everything, until more iterations are allowed."""
    iterations = open_result(three.parent / "store", "mesons").iterations.max(["source", "column"]).values
    worst = LABELS[int(np.argmax(iterations))]
    shutil.rmtree(three.parent / "store" / "meson_two_point")
    shutil.rmtree(three.parent / "store" / "meson_average")
    limit = int(np.sort(iterations)[-2])
    assert limit < iterations.max() and worst == LABELS[SMOOTH]
    edit(three, ("tolerance: 1.0e-6", f"tolerance: 1.0e-6, max_iterations: {limit}"))
    answer = quarkline("run", three, "--cluster", cluster, "--json")
    result = json.loads(answer.out)
    assert answer.code == 1 and result["partial"] == MARK and worst in result["failures"][0]
    assert open_result(three.parent / "store", "average", partial=True).attrs["partial"] == MARK
    edit(three, (f", max_iterations: {limit}", ""))
    assert quarkline("run", three, "--cluster", cluster).code == 0
    assert open_result(three.parent / "store", "average").sizes["sample"] == 3


def test_a_report_on_the_way(quarkline: CommandLine, three: Path) -> None:
    """Of an ensemble that has grown, before it has run again: averages are made, nothing is measured."""
    for number in (3, 4):
        label = f"conf.{number}.ildg"
        lattice = Lattice((4, 4, 4, 4))
        write_ildg(
            three.parent / "confs" / label, thermalised(lattice, 6.0, number, label, 1, 0), lattice, 64
        )
    answer = quarkline("report", three)
    assert answer.code == 1 and "until then: 3 of 5 configurations" in answer.err
    assert "3 of 5 configurations" in (three.parent / "report" / "index.html").read_text()
    assert missing(quarkline, three) == {"observables": 2, "mesons": 2, "average": 1}
