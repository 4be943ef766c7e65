"""The `ensemble` section: lists of patterns, and configurations that are left out."""

from __future__ import annotations

import re
import shutil
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest
from tiny_project import TINY, CommandLine, edit, missing, refused

from pipeline import At, InputError, Store, plan
from stages.ensemble.configuration import file_configuration
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.formats import lime, write_ildg
from stages.lqcd.lattice.geometry import Lattice
from workflows.catalogue import load_project


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A workflow file, and configurations a.1, a.2 in `a`, b.1 in `b`."""
    for number, name in enumerate(("a.1", "a.2", "b.1")):
        folder = tmp_path / name[0]
        folder.mkdir(exist_ok=True)
        lattice = Lattice((4, 4, 4, 4))
        write_ildg(folder / f"{name}.ildg", thermalised(lattice, 6.0, number, name, 1, 0), lattice, 64)
    file = tmp_path / "g2.yaml"
    source = re.search(r"  heatbath: .*\n", TINY)
    assert source
    file.write_text(TINY.replace(source[0], '  files: ["a/*.ildg", "b/*.ildg"]\n'))
    return file


def labels(file: Path) -> tuple[object, ...]:
    return load_project(file).workflow.nodes["configuration"].over["config"]


def test_patterns_in_a_list_are_one_ensemble_and_what_is_excluded_is_not_opened(quarkline, files):
    all_three = ("a.1.ildg", "a.2.ildg", "b.1.ildg")
    assert labels(files) == all_three
    edit(files, ('["a/*.ildg", "b/*.ildg"]', '["*/*.ildg", "a/*.ildg"]'))
    assert labels(files) == all_three, "a file that matches twice counts once"
    (files.parent / "b" / "b.2.ildg").write_text("bring milk")
    refused(quarkline("plan", files), "b/b.2.ildg", "list it under `exclude`")
    edit(files, ('a/*.ildg"]', 'a/*.ildg"]\n  exclude: [b.2.ildg]'))
    assert labels(files) == all_three
    # of two files of one name neither counts when it is excluded
    (files.parent / "b" / "a.2.ildg").write_bytes((files.parent / "a" / "a.2.ildg").read_bytes())
    edit(files, ("[b.2.ildg]", "[b.2.ildg, a.2.ildg]"))
    assert labels(files) == ("a.1.ildg", "b.1.ildg")


def test_generated_configurations_are_excluded_too(quarkline: CommandLine, project: Path) -> None:
    """The rest is what it was: nothing but the average is another one."""
    edit(
        project,
        ("configurations: 2", "configurations: 3"),
        ("seed: 977}", "seed: 977}\n  exclude: [heatbath-2]"),
    )
    assert missing(quarkline, project) == {}


def keys_of(file: Path) -> list[str]:
    return [chunk.key for chunk in plan(load_project(file).workflow, Store(file.parent / "store")).everything]


def test_wrong_headers_are_accepted_by_name(quarkline: CommandLine, files: Path) -> None:
    """Only those that are named, and no key alters."""
    keys = keys_of(files)
    edit(files, ('b/*.ildg"]', 'b/*.ildg"]\n  wrong_headers: [b.1.lidg]'))
    said = "`ensemble.wrong_headers` (line 4): 'b.1.lidg' is the label of no configuration: did you mean"
    refused(quarkline("plan", files), said)
    edit(files, ("b.1.lidg", "b.1.ildg"))
    assert keys_of(files) == keys
    path, header = files.parent / "b" / "b.1.ildg", BytesIO()
    lime.write_record(header, "xlf-info", b"plaquette = 0.25", lime.BEGIN | lime.END)
    path.write_bytes(header.getvalue() + path.read_bytes())
    read = partial(file_configuration, path=path, extents=(4, 4, 4, 4))
    assert read(at=At(config="b.1.ildg"), wrong_headers=("b.1.ildg",)).links.size
    with pytest.raises(InputError, match=r"plaquette should be 0.25, found .*`ensemble.wrong_headers`"):
        read(at=At(config="b.1.ildg"), wrong_headers=("a.1.ildg",))


def test_files_of_one_name_in_several_streams(quarkline: CommandLine, files: Path) -> None:
    """Labels by folder tell them apart; a label that stays what it was keeps its keys."""
    keys = keys_of(files)
    edit(files, ('b/*.ildg"]', 'b/*.ildg"]\n  labels: "{name}"'))
    assert keys_of(files) == keys
    lattice = Lattice((4, 4, 4, 4))
    write_ildg(files.parent / "b" / "a.1.ildg", thermalised(lattice, 6.0, 9, "other", 1, 0), lattice, 64)
    refused(quarkline("plan", files), "have the same label, 'a.1.ildg'", 'write `labels: "{parent}/{name}"`')
    edit(files, ('"{name}"', '"{parent}/{name}"\n  exclude: [a/a.2.ildg]'))
    assert labels(files) == ("a/a.1.ildg", "b/a.1.ildg", "b/b.1.ildg")
    shutil.copytree(files.parent, files.parent / "more" / "x")
    edit(
        files,
        ('["a/*.ildg", "b/*.ildg"]', '["a/a.1.ildg", "more/x/a/a.1.ildg"]'),
        ("\n  exclude: [a/a.2.ildg]", ""),
    )
    refused(quarkline("plan", files), "`ensemble.labels` (line 4)", "{grandparent}/{parent}/{name}")
